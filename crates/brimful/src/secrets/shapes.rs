//! Forms of tokens that are known by how they begin.

/// Hexadecimal digits of a key of Weights & Biases.
pub(super) const HEXADECIMAL_KEY: usize = 40;

/// Bytes before a key in which it is named.
const NEAR: usize = 200;

/// A prefix, what may follow, and how much of it at least.
struct Shape {
    prefix: &'static str,
    body: fn(u8) -> bool,
    min: usize,
}

const fn shape(prefix: &'static str, body: fn(u8) -> bool, min: usize) -> Shape {
    Shape { prefix, body, min }
}

const SHAPES: &[Shape] = &[
    // Hugging Face
    shape("hf_", alphanumeric, 20),
    shape("api_org_", alphanumeric, 20),
    // GitHub and GitLab
    shape("ghp_", alphanumeric, 30),
    shape("gho_", alphanumeric, 30),
    shape("ghu_", alphanumeric, 30),
    shape("ghs_", alphanumeric, 30),
    shape("ghr_", alphanumeric, 30),
    shape("github_pat_", word, 20),
    shape("glpat-", word_or_dash, 20),
    // OpenAI, Anthropic and others
    shape("sk-", word_or_dash, 20),
    shape("sk_live_", alphanumeric, 16),
    shape("sk_test_", alphanumeric, 16),
    shape("nvapi-", word_or_dash, 20),
    shape("r8_", alphanumeric, 30),
    shape("wandb_v1_", word_or_dash, 20),
    // Amazon and Google
    shape("AKIA", upper_or_digit, 16),
    shape("ASIA", upper_or_digit, 16),
    shape("AIza", word_or_dash, 30),
    shape("ya29.", word_or_dash, 20),
    // Slack
    shape("xoxa-", word_or_dash, 10),
    shape("xoxb-", word_or_dash, 10),
    shape("xoxe-", word_or_dash, 10),
    shape("xoxo-", word_or_dash, 10),
    shape("xoxp-", word_or_dash, 10),
    shape("xoxr-", word_or_dash, 10),
    shape("xoxs-", word_or_dash, 10),
    // Package registries
    shape("npm_", alphanumeric, 30),
    shape("pypi-", word_or_dash, 50),
];

/// The length of the token that a text begins with.
pub(super) fn length(text: &str) -> Option<usize> {
    SHAPES
        .iter()
        .find_map(|shape| {
            let body = text.strip_prefix(shape.prefix)?;
            let length = body.bytes().take_while(|byte| (shape.body)(*byte)).count();
            // A word of a language has no digits.
            let has_digit = body[..length].bytes().any(|byte| byte.is_ascii_digit());
            (length >= shape.min && has_digit).then_some(shape.prefix.len() + length)
        })
        .or_else(|| web_token(text))
        .or_else(|| bearer(text))
}

/// Three parts in base64, the first of which is a JSON object: `eyJ….eyJ….…`.
fn web_token(text: &str) -> Option<usize> {
    let part = |text: &str| text.bytes().take_while(|byte| word_or_dash(*byte)).count();
    let head = text.strip_prefix("eyJ").map(part).filter(|n| *n >= 8)? + 3;
    let body = text[head..]
        .strip_prefix('.')
        .map(part)
        .filter(|n| *n >= 8)?
        + 1;
    let rest = &text[head + body..];
    let signature = rest.strip_prefix('.').map_or(0, |rest| 1 + part(rest));
    Some(head + body + signature)
}

/// `Bearer` and what follows it, as a header has it.
fn bearer(text: &str) -> Option<usize> {
    let scheme = "Bearer ";
    let head = text.get(..scheme.len())?;
    let body = &text[scheme.len()..];
    let length = body
        .bytes()
        .take_while(|byte| word_or_dash(*byte) || matches!(byte, b'.' | b'+' | b'/' | b'=' | b'~'))
        .count();
    let has_digit = body[..length].bytes().any(|byte| byte.is_ascii_digit());
    (head.eq_ignore_ascii_case(scheme) && length >= 16 && has_digit)
        .then_some(scheme.len() + length)
}

/// Whether a key of Weights & Biases begins here: a hash as any other, in a line that is about a key or a login there.
pub(super) fn is_wandb_key(text: &str, at: usize) -> bool {
    let digits = text[at..]
        .bytes()
        .take_while(u8::is_ascii_alphanumeric)
        .count();
    if digits != HEXADECIMAL_KEY || !is_hexadecimal_key(&text[at..at + digits]) {
        return false;
    }
    let near = &text[text.ceil_char_boundary(at.saturating_sub(NEAR))..at];
    let line = near.rfind('\n').map_or(0, |end| end + 1);
    let before = near[line..].to_ascii_lowercase();
    before.contains("wandb") && (before.contains("key") || before.contains("login"))
}

pub(super) fn is_hexadecimal_key(word: &str) -> bool {
    word.len() == HEXADECIMAL_KEY
        && word
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn upper_or_digit(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn word_or_dash(byte: u8) -> bool {
    word(byte) || byte == b'-'
}
