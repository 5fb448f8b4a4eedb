//! Files that are no pickles, told apart by how they begin.

use std::fmt;

/// What a file is that is not a pickle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    Empty,
    Zip,
    Gzip,
    Zstd,
    Bzip2,
    Xz,
    TorchLegacy,
    Json,
    Html,
    Unknown,
}

impl FileKind {
    pub(super) fn of(bytes: &[u8]) -> Option<FileKind> {
        const MAGIC: &[(&[u8], FileKind)] = &[
            (b"PK\x03\x04", FileKind::Zip),
            (b"\x1f\x8b", FileKind::Gzip),
            (b"\x28\xb5\x2f\xfd", FileKind::Zstd),
            (b"BZh", FileKind::Bzip2),
            (b"\xfd7zXZ\0", FileKind::Xz),
            // `torch.save` before 1.6 starts with this number as a pickle of its own.
            (
                b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.",
                FileKind::TorchLegacy,
            ),
        ];
        let magic = MAGIC
            .iter()
            .find_map(|(magic, kind)| bytes.starts_with(magic).then_some(*kind));
        magic.or_else(|| match bytes.first() {
            None => Some(FileKind::Empty),
            // `{` and `[` are no instructions, nor is white space.
            Some(b'{' | b'[') => Some(FileKind::Json),
            Some(b'<') => Some(FileKind::Html),
            Some(0x80) => None,
            // Protocols 0 and 1 have no header: any instruction may come first.
            Some(first) if is_instruction(*first) => None,
            Some(_) => Some(FileKind::Unknown),
        })
    }

    pub(super) fn hint(self) -> &'static str {
        match self {
            FileKind::Empty => "the run that should have written it may have ended before it did",
            FileKind::Zip | FileKind::TorchLegacy => {
                "if `torch.save` wrote it: load it where it was made, then `pickle.dump(snapshot, file)`; other archives: unpack first"
            }
            FileKind::Gzip => "unpack it first, as in `gunzip -k FILE`",
            FileKind::Zstd => "unpack it first, as in `zstd -d FILE`",
            FileKind::Bzip2 => "unpack it first, as in `bunzip2 -k FILE`",
            FileKind::Xz => "unpack it first, as in `unxz -k FILE`",
            FileKind::Json | FileKind::Html | FileKind::Unknown => {
                "pass a file written by `torch.cuda.memory._dump_snapshot(path)`"
            }
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileKind::Empty => "an empty file",
            FileKind::Zip => "a zip archive, as `torch.save` writes",
            FileKind::Gzip => "a gzip file",
            FileKind::Zstd => "a zstd file",
            FileKind::Bzip2 => "a bzip2 file",
            FileKind::Xz => "an xz file",
            FileKind::TorchLegacy => "a file of `torch.save` in its old format",
            FileKind::Json => "what looks like JSON",
            FileKind::Html => "what looks like an HTML page",
            FileKind::Unknown => "another kind of file",
        })
    }
}

/// Whether a byte is an instruction of any protocol, also one that is refused.
pub(super) fn is_instruction(byte: u8) -> bool {
    matches!(byte, 0x80..=0x98) || b"(.012BCFGIJKLMNPQRSTUVX]abcdeghijloprstuq})".contains(&byte)
}
