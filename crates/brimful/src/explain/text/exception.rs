//! The class of an exception in a line.

/// An exception's class, with its place: `KeyError: 'x'`, `torch.distributed.DistBackendError: …`, a bare `AssertionError`.
pub(super) fn exception(line: &str) -> Option<(usize, &str)> {
    const ENDINGS: [&str; 6] = [
        "Error",
        "Exception",
        "Interrupt",
        "StopIteration",
        "Full",
        "Empty",
    ];
    if line.len() > 4000 {
        return exception(&line[..super::clean::floor(line, 4000)]);
    }
    if [
        "except ", "raise ", "class ", "return ", "import ", "from ", "File \"", "#", "with ",
        "assert ",
    ]
    .iter()
    .any(|word| line.starts_with(word))
    {
        return None;
    }
    if let Some(found) = exception_in_small_letters(line).or_else(|| exception_with_dots(line)) {
        return Some(found);
    }
    for ending in ENDINGS {
        for (at, _) in line.match_indices(ending).take(8) {
            let end = at + ending.len();
            let rest = &line[end..];
            let begin = line[..at]
                .rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'))
                .map_or(0, |before| {
                    before + line[before..].chars().next().map_or(1, char::len_utf8)
                });
            let name = &line[begin..end];
            let short = name.rsplit('.').next().unwrap_or(name);
            if !short.starts_with(|c: char| c.is_ascii_uppercase()) {
                continue;
            }
            let is_alone = begin == 0 && rest.trim().is_empty();
            let has_message = rest.starts_with(": ") || rest.starts_with(':') && begin == 0;
            // `queue.Full` ends a traceback without a message, a plain word does not.
            let is_word = matches!(ending, "Full" | "Empty") && !name.contains('.');
            let is_short = short.len() < 5 && ending == "Error";
            if (is_alone || has_message) && !is_word && !is_short {
                return Some((begin, name));
            }
        }
    }
    None
}

/// Any class with its module before a message: `pyarrow.lib.ArrowInvalid: …`, at the beginning of a line only.
fn exception_with_dots(line: &str) -> Option<(usize, &str)> {
    let (name, _) = line.split_once(": ")?;
    let (module, class) = name.rsplit_once('.')?;
    let is_module = module.len() < 80
        && module.starts_with(|c: char| c.is_ascii_lowercase())
        && module
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.');
    let is_class = class.len() > 3
        && class.starts_with(|c: char| c.is_ascii_uppercase())
        && class.bytes().all(|b| b.is_ascii_alphanumeric())
        && class.bytes().any(|b| b.is_ascii_lowercase());
    (is_module && is_class && !class.ends_with("Warning")).then_some((0, name))
}

/// As people retype it: `keyerror: 'x'`, at the beginning of a line only.
fn exception_in_small_letters(line: &str) -> Option<(usize, &str)> {
    let length = line
        .bytes()
        .take(80)
        .take_while(|b| b.is_ascii_lowercase() || *b == b'_' || *b == b'.')
        .count();
    let name = &line[..length];
    let rest = &line[length..];
    let is_class = ["error", "exception"].iter().any(|ending| {
        name.strip_suffix(ending)
            .is_some_and(|stem| stem.len() >= 2 && !stem.ends_with('.'))
    });
    (is_class && (rest.is_empty() || rest.starts_with(':'))).then_some((0, name))
}
