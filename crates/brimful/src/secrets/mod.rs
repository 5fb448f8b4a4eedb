//! Masks secrets in command lines, variables and output before they are recorded or shown.
//!
//! What is masked: the values of options and variables that are named like a secret (`names.rs`), well-known forms of
//! tokens wherever they are (`shapes.rs`), the user information of URLs, `Authorization` headers and private keys. What
//! is left alone: everything that only looks similar, such as `--tokenizer gpt2`, `--key-dim 64`, paths and hashes.
//!
//! A record is read by people, and texts are searched for causes of death, so a value becomes `***` and everything
//! around it stays.

mod names;
mod shapes;

#[cfg(test)]
mod tests;

use names::{Strength, strength};

/// Stands for a secret.
pub const MASK: &str = "***";

const MAX_NAME: usize = 100;
/// No secret on one line is longer; a text without blanks must not be searched to its end for every name in it.
const MAX_VALUE: usize = 2 << 10;
const PRIVATE_KEY: &str = "PRIVATE KEY-----";

/// The words of a command without its secrets.
pub fn mask_command(words: &[String]) -> Vec<String> {
    let mut masked = Vec::with_capacity(words.len());
    let mut option = Strength::None;
    let mut is_login = false;
    for word in words {
        let expected = std::mem::replace(&mut option, Strength::None);
        if expected != Strength::None && !word.starts_with('-') {
            masked.push(mask_value(expected, word));
            continue;
        }
        let (name, value) = match word.split_once('=') {
            Some((name, value)) if is_name(name) => (name, Some(value)),
            _ => (word.as_str(), None),
        };
        let found = strength(name.trim_start_matches(['-', '+', '~']));
        masked.push(match value {
            Some(value) if found != Strength::None => {
                format!("{name}={}", mask_value(found, value))
            }
            None if word.starts_with('-') && is_name(word) && found != Strength::None => {
                option = found;
                word.clone()
            }
            _ if is_login && shapes::is_hexadecimal_key(word) => MASK.to_owned(),
            _ => mask_text(word),
        });
        is_login |= word == "login";
    }
    masked
}

/// The value of a variable, or [`MASK`] where it is a secret.
pub fn mask_variable(name: &str, value: &str) -> String {
    match strength(name) {
        Strength::None => mask_text(value),
        found => mask_value(found, value),
    }
}

/// A text without its secrets.
pub fn mask_text(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut copied = 0;
    let mut at = 0;
    while at < text.len() {
        let Some(secret) = secret_at(text, at) else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
            continue;
        };
        masked.push_str(&text[copied..secret.start]);
        masked.push_str(MASK);
        at = secret.end;
        copied = at;
    }
    masked.push_str(&text[copied..]);
    masked
}

/// The secret that is found by what begins at `at`.
fn secret_at(text: &str, at: usize) -> Option<std::ops::Range<usize>> {
    let rest = &text[at..];
    let first = rest.bytes().next()?;
    let before = text[..at].bytes().next_back();
    if at == 0
        && let Some(end) = end_of_private_key(text)
    {
        return Some(0..end);
    }
    if rest.starts_with("-----BEGIN ") {
        return private_key(text, at);
    }
    if rest.starts_with("://") {
        return user_information(text, at);
    }
    if before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    if let Some(length) = shapes::length(rest) {
        return Some(at..at + length);
    }
    if first.is_ascii_hexdigit() && shapes::is_wandb_key(text, at) {
        return Some(at..at + shapes::HEXADECIMAL_KEY);
    }
    if before.is_some_and(is_name_byte) || !is_name_byte(first) {
        return None;
    }
    assigned(text, at)
}

/// The value of an assignment (`NAME=value`, `"name": "value"`, `--name value`) whose name begins at `at`.
fn assigned(text: &str, at: usize) -> Option<std::ops::Range<usize>> {
    let length = text[at..]
        .bytes()
        .take_while(|byte| is_name_byte(*byte))
        .count();
    if length > MAX_NAME {
        return None;
    }
    let name = &text[at..at + length];
    let is_option = name.starts_with('-');
    let bare = name.trim_matches(['-', '.']);
    let mut found = strength(bare);
    // A query of a URL: signatures that give access.
    let before = text[..at].bytes().next_back();
    if matches!(before, Some(b'?' | b'&')) && names::is_signature(bare) {
        found = Strength::Strong;
    }
    // "API key: …".
    if found == Strength::Weak && names::is_strengthened_by(last_word(&text[..at])) {
        found = Strength::Strong;
    }
    if found == Strength::None {
        return None;
    }
    let mut value_at = at + length;
    let behind = text[value_at..].trim_start_matches(['"', '\'']);
    let unquoted = text.len() - behind.len();
    let sign = text.len() - behind.trim_start_matches(' ').len();
    let is_assigned = match &text.as_bytes()[sign..] {
        [b'=', b'=', ..] | [b':', b':' | b'/', ..] => false,
        [b'=' | b':', ..] => true,
        _ => false,
    };
    if is_assigned && unquoted - value_at <= 1 && sign - unquoted <= 2 {
        value_at = sign + 1;
    } else if !(is_option && text[value_at..].starts_with(' ')) {
        return None;
    }
    let rest = text[value_at..].trim_start_matches(' ');
    value_at = text.len() - rest.len();
    if names::is_authorization(bare) {
        for scheme in ["bearer ", "basic ", "token "] {
            let head = text.get(value_at..value_at + scheme.len());
            if head.is_some_and(|head| head.eq_ignore_ascii_case(scheme)) {
                value_at += scheme.len();
            }
        }
    }
    let range = value(text, value_at)?;
    let is_quoted = range.start > value_at;
    let value = &text[range.clone()];
    let is_spared = is_harmless(found, value)
        || !is_assigned && (value.starts_with('-') || is_placeholder(bare, value))
        || !is_quoted && is_code(text, &range)
        || found == Strength::Weak && !is_option && !is_opaque(value);
    (!is_spared).then_some(range)
}

/// A value that begins at `at`: a quoted text without its quotes, or all up to a blank or a sign that ends it.
fn value(text: &str, at: usize) -> Option<std::ops::Range<usize>> {
    let rest = beginning(&text[at..], MAX_VALUE);
    let quote = rest.chars().next()?;
    if matches!(quote, '"' | '\'') {
        let inner = &rest[1..];
        let length = inner.find([quote, '\n']).unwrap_or(inner.len());
        return Some(at + 1..at + 1 + length);
    }
    let ends = |c: char| {
        c.is_whitespace()
            || matches!(
                c,
                ',' | ';' | ')' | ']' | '}' | '"' | '\'' | '&' | '<' | '|'
            )
    };
    let length = rest.find(ends).unwrap_or(rest.len());
    Some(at..at + length)
}

fn mask_value(strength: Strength, value: &str) -> String {
    if is_harmless(strength, value) {
        value.to_owned()
    } else {
        MASK.to_owned()
    }
}

/// Whether a value can be no secret, whatever its name is: nothing, a switch, a reference to a variable; and a number,
/// unless the name leaves no doubt.
fn is_harmless(strength: Strength, value: &str) -> bool {
    let is_number = strength == Strength::Weak && value.parse::<f64>().is_ok();
    is_number
        || value.starts_with(['$', '{', '%'])
        || matches!(
            value.to_ascii_lowercase().as_str(),
            "" | MASK | "none" | "null" | "true" | "false" | "yes" | "no" | "on" | "off"
        )
}

/// Whether a value is the stand-in of a help text: `--hf-token HF_TOKEN`.
fn is_placeholder(name: &str, value: &str) -> bool {
    value.eq_ignore_ascii_case(&name.replace('-', "_")) || value.starts_with('[')
}

/// Whether an unquoted value is a call or a subscript, as in `token=os.environ["TOKEN"]`.
fn is_code(text: &str, range: &std::ops::Range<usize>) -> bool {
    let value = &text[range.clone()];
    let name = value
        .bytes()
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
        .count();
    let next = text.as_bytes().get(range.start + name);
    name > 0 && matches!(next, Some(b'(' | b'[')) || value == "lambda"
}

/// Whether a value looks made by a machine.
fn is_opaque(value: &str) -> bool {
    value.len() >= 16
        && value.bytes().any(|byte| byte.is_ascii_digit())
        && value.bytes().any(|byte| byte.is_ascii_alphabetic())
        && value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+' | b'='))
}

/// The user and password of a URL, where `at` is its `://`.
fn user_information(text: &str, at: usize) -> Option<std::ops::Range<usize>> {
    if !text[..at].ends_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let start = at + 3;
    let rest = beginning(&text[start..], MAX_VALUE);
    let ends =
        |c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\'' | '<' | '>' | '`');
    let authority = &rest[..rest.find(ends).unwrap_or(rest.len())];
    let user = &authority[..authority.rfind('@')?];
    // The user of every repository.
    (!matches!(user, "" | "git" | MASK)).then(|| start..start + user.len())
}

/// The body of a private key, where `at` is its first line. One without an end goes to the end of the text.
fn private_key(text: &str, at: usize) -> Option<std::ops::Range<usize>> {
    let line = beginning(&text[at..], MAX_NAME).lines().next()?;
    let head = line.find(PRIVATE_KEY)? + PRIVATE_KEY.len();
    let start = at + head;
    let end = text[start..]
        .find("-----END ")
        .map_or(text.len(), |end| start + end);
    (!text[start..end].trim().is_empty() && text[start..end].trim() != MASK).then_some(start..end)
}

/// Where the body of a private key ends whose beginning was cut off, in a text that begins within it.
fn end_of_private_key(text: &str) -> Option<usize> {
    let end = text.find("-----END ")?;
    let is_base64 = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'\n' | b'\r')
    };
    let is_body = end > 0 && text[..end].bytes().all(is_base64);
    (is_body && text[end..].lines().next()?.ends_with(PRIVATE_KEY)).then_some(end)
}

fn beginning(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

fn last_word(text: &str) -> &str {
    let text = text.trim_end_matches(' ');
    let start = text
        .bytes()
        .rposition(|byte| !byte.is_ascii_alphanumeric())
        .map_or(0, |at| at + 1);
    text.get(start..).unwrap_or_default()
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_NAME
        && text
            .bytes()
            .all(|byte| is_name_byte(byte) || matches!(byte, b'+' | b'~' | b'/' | b'@'))
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}
