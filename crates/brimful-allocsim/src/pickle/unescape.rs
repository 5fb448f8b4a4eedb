//! The two forms of escaped text that protocol 0 has.

/// What a Python 2 `repr` of bytes stands for; `None` for an unfinished escape.
pub(super) fn unescape_quoted(inner: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next()? {
            b'n' => bytes.push(b'\n'),
            b'r' => bytes.push(b'\r'),
            b't' => bytes.push(b'\t'),
            b'x' => {
                let high = hex_digit(rest.next()?)?;
                let low = hex_digit(rest.next()?)?;
                bytes.push(u8::try_from(high * 16 + low).ok()?);
            }
            quoted @ (b'\\' | b'\'' | b'"') => bytes.push(quoted),
            // `repr` writes no other, and Python keeps those it does not know.
            other => bytes.extend([b'\\', other]),
        }
    }
    Some(bytes)
}

/// Python's `raw-unicode-escape`; `None` for an unfinished escape.
pub(super) fn unescape_unicode(line: &[u8]) -> Option<String> {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let [first, after @ ..] = rest {
        rest = after;
        let n_digits = match (*first, after.first()) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            _ => {
                text.push(char::from(*first));
                continue;
            }
        };
        let digits = after.get(1..=n_digits)?;
        let code = digits.iter().try_fold(0u32, |code, digit| {
            Some(code.wrapping_mul(16) + hex_digit(*digit)?)
        })?;
        text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        rest = &after[1 + n_digits..];
    }
    Some(text)
}

fn hex_digit(byte: u8) -> Option<u32> {
    char::from(byte).to_digit(16)
}
