//! Names that tell that their value is a secret.

/// How sure a name makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strength {
    None,
    /// `key`, `token` or `auth` alone: as often the key of a dictionary.
    Weak,
    Strong,
}

/// Words that make a secret of any name that holds them.
const SECRETS: &[&str] = &[
    "secret",
    "secrets",
    "password",
    "passwords",
    "passwd",
    "passphrase",
    "credential",
    "credentials",
    "apikey",
    "secretkey",
    "accesskey",
    "privatekey",
    "authkey",
    "authtoken",
    "apitoken",
    "accesstoken",
    "bearertoken",
    "hftoken",
    "ghtoken",
    "githubtoken",
    "wandbkey",
    "authorization",
];
/// Words that make one of a name that ends with them.
const LAST: &[&str] = &["token", "key", "auth", "pat"];
/// Before one of those they tell that it is about data or text.
const OF_DATA: &[&str] = &[
    "audio",
    "begin",
    "begin_of",
    "best",
    "blank",
    "bos",
    "cache",
    "caption",
    "class",
    "cls",
    "column",
    "data",
    "decoder",
    "depth",
    "dict",
    "ema",
    "end",
    "eos",
    "feature",
    "field",
    "first",
    "foreign",
    "group",
    "hash",
    "id",
    "image",
    "img",
    "index",
    "input",
    "json",
    "label",
    "last",
    "lookup",
    "loss",
    "mask",
    "max",
    "metric",
    "min",
    "model",
    "monitor",
    "new",
    "next",
    "null",
    "num",
    "of",
    "output",
    "pad",
    "padding",
    "param",
    "partition",
    "per",
    "primary",
    "prompt",
    "public",
    "query",
    "response",
    "row",
    "sample",
    "sep",
    "shard",
    "sort",
    "special",
    "start",
    "state",
    "step",
    "stop",
    "target",
    "text",
    "think",
    "unk",
    "value",
    "video",
    "vocab",
    "x",
    "y",
];
/// At the end of a name they tell that the value is about the secret, not the secret.
const ABOUT: &[&str] = &[
    "count", "dir", "dim", "expiry", "file", "filename", "id", "index", "kind", "len", "length",
    "level", "manager", "name", "path", "prefix", "size", "type", "version",
];
/// Words before `key` or `token` in a sentence.
const STRENGTHENING: &[&str] = &[
    "api", "access", "secret", "auth", "bearer", "wandb", "private",
];

pub(super) fn strength(name: &str) -> Strength {
    let words = words(name);
    let Some(last) = words.last().map(String::as_str) else {
        return Strength::None;
    };
    if ABOUT.contains(&last) {
        return Strength::None;
    }
    if words.iter().any(|word| SECRETS.contains(&word.as_str())) {
        return Strength::Strong;
    }
    let before = words.len().checked_sub(2).map(|idx| words[idx].as_str());
    match before {
        // `PWD` is the working directory.
        Some(before) if last == "pwd" => match before {
            "old" => Strength::None,
            _ => Strength::Strong,
        },
        Some(before) if LAST.contains(&last) && !OF_DATA.contains(&before) => match last {
            "pat" if !matches!(before, "github" | "gh" | "gitlab" | "azure") => Strength::None,
            _ => Strength::Strong,
        },
        None if matches!(last, "key" | "token" | "auth") => Strength::Weak,
        _ => Strength::None,
    }
}

/// Whether this is a parameter of a URL that gives access.
pub(super) fn is_signature(name: &str) -> bool {
    matches!(
        name.to_ascii_lowercase().as_str(),
        "sig" | "signature" | "x-amz-signature" | "x-amz-credential" | "x-goog-signature"
    )
}

pub(super) fn is_authorization(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "authorization" || name == "auth" || name.ends_with("-authorization")
}

pub(super) fn is_strengthened_by(word: &str) -> bool {
    STRENGTHENING.contains(&word.to_ascii_lowercase().as_str())
}

/// `wandb.apiKey`, `WANDB_API_KEY` and `--wandb-api-key` are the words wandb, api, key.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        let starts_word = !c.is_ascii_alphanumeric() || c.is_ascii_uppercase() && was_lower;
        if starts_word && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if c.is_ascii_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.push(c.to_ascii_lowercase());
        }
        was_lower = c.is_ascii_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}
