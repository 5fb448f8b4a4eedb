//! Millions of names in two allocations, and what the end of a name says.

use crate::array::Encoding;

/// Names one after the other in one piece of memory: eight bytes for each besides its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    bytes: Vec<u8>,
    ends: Vec<u64>,
}

impl Names {
    pub(crate) fn push(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.ends.push(self.bytes.len() as u64);
    }

    /// Puts the names of another list behind these.
    pub(crate) fn append(&mut self, others: &Names) {
        let start = self.bytes.len() as u64;
        self.bytes.extend_from_slice(&others.bytes);
        self.ends.extend(others.ends.iter().map(|end| start + end));
    }

    pub(crate) fn len(&self) -> u64 {
        self.ends.len() as u64
    }

    pub(crate) fn get(&self, index: u64) -> Option<&[u8]> {
        let index = usize::try_from(index).ok()?;
        let end = usize::try_from(*self.ends.get(index)?).ok()?;
        let start = match index.checked_sub(1) {
            Some(before) => usize::try_from(self.ends[before]).ok()?,
            None => 0,
        };
        self.bytes.get(start..end)
    }

    /// Gives back what was taken in advance.
    pub(crate) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}

/// A name out of a file, for messages: it may be a megabyte long, and hold anything.
pub(crate) fn shown(name: &[u8]) -> String {
    const MAX_LEN: usize = 80;
    let cut = &name[..name.len().min(MAX_LEN)];
    let dots = if cut.len() < name.len() { "..." } else { "" };
    format!("{}{dots}", String::from_utf8_lossy(cut).escape_debug())
}

/// What files with these extensions hold; unknown where they differ.
pub(crate) fn encoding_of<S: AsRef<str>>(extensions: &[S]) -> Encoding {
    let one = |extension: &str| {
        let last = extension.rsplit('.').next().unwrap_or(extension);
        match last.to_ascii_lowercase().as_str() {
            "jpg" | "jpeg" | "png" | "webp" => Encoding::Image,
            "off" => Encoding::Mesh,
            "cls" | "json" | "txt" => Encoding::Text,
            _ => Encoding::Unknown,
        }
    };
    let mut encodings = extensions.iter().map(|extension| one(extension.as_ref()));
    let first = encodings.next().unwrap_or(Encoding::Unknown);
    if encodings.all(|encoding| encoding == first) {
        first
    } else {
        Encoding::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_in_order() {
        let mut names = Names::default();
        for parts in [&[&b"a"[..], b"/", b"b"][..], &[b""], &[b"last"]] {
            names.push(parts);
        }
        names.shrink();
        names.append(&Names::default());
        let mut others = Names::default();
        others.push(&[b"very"]);
        others.push(&[b"last"]);
        names.append(&others);
        let all: Vec<_> = (0..6).map_while(|index| names.get(index)).collect();
        assert_eq!(all, [&b"a/b"[..], b"", b"last", b"very", b"last"]);
        assert_eq!(names.len(), 5);
    }

    #[test]
    fn a_name_is_shown_short_and_without_control_characters() {
        assert_eq!(shown("a/é.jpg".as_bytes()), "a/é.jpg");
        assert_eq!(shown(b"\x1b[31mred"), "\\u{1b}[31mred");
        assert_eq!(shown(&[b'a'; 1000]), format!("{}...", "a".repeat(80)));
    }

    #[test]
    fn an_extension_tells_what_a_file_holds() {
        assert_eq!(encoding_of(&["jpg", "PNG"]), Encoding::Image);
        assert_eq!(encoding_of(&["seg.png"]), Encoding::Image);
        assert_eq!(encoding_of(&["off"]), Encoding::Mesh);
        assert_eq!(encoding_of(&["jpg", "txt"]), Encoding::Unknown);
        assert_eq!(encoding_of(&["npy"]), Encoding::Unknown);
        assert_eq!(encoding_of::<&str>(&[]), Encoding::Unknown);
    }
}
