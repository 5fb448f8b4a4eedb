//! The header of a `.npy` file: a Python dictionary of three entries, written as text.

use crate::array::DType;
use crate::problem::Problem;
use crate::reading::Reader;
use crate::value::Piece;

/// What such a file begins with.
pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";

/// Longest header that is read. NumPy itself refuses more than 10,000 bytes unless told otherwise.
const MAX_LEN: u32 = 1 << 16;

/// Longest string in it that is read: element types have a few characters.
const MAX_STRING_LEN: usize = 64;

/// As many as NumPy 2 allows.
const MAX_DIMENSIONS: usize = 64;

/// What a `.npy` file says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) dtype: DType,
    /// The most significant byte comes first.
    pub(crate) big_endian: bool,
    pub(crate) shape: Vec<usize>,
    /// Where the elements begin.
    pub(crate) start: u64,
}

impl Header {
    pub(crate) fn read(reader: &Reader) -> Result<Header, Problem> {
        let mut spare = Piece::default();
        let mut first = [0; 12];
        if reader.len() < first.len() as u64 {
            return Err(Problem::malformed(
                "the header of a .npy file",
                format!("{} bytes", reader.len()),
            ));
        }
        reader.read_to(0, &mut first, &mut spare)?;
        let (text_start, text_len) = extent(first)?;
        let start = text_start + u64::from(text_len);
        if start > reader.len() {
            return Err(Problem::malformed(
                format!("a header of {start} bytes"),
                format!("a file of {}", reader.len()),
            ));
        }
        let mut text = vec![0; text_len as usize];
        reader.read_to(text_start, &mut text, &mut spare)?;
        let described = Parser::new(&text).described()?;
        let (dtype, big_endian) = element(&described.descr)?;
        if described.fortran_order && described.shape.len() > 1 {
            return Err(Problem::unsupported(
                format!(
                    "an array of {} sides in Fortran order",
                    described.shape.len()
                ),
                "its samples are not contiguous; save np.ascontiguousarray(array) instead",
            ));
        }
        Ok(Header {
            dtype,
            big_endian,
            shape: described.shape,
            start,
        })
    }
}

/// Where the text begins, and its bytes.
fn extent(first: [u8; 12]) -> Result<(u64, u32), Problem> {
    if !first.starts_with(MAGIC) {
        return Err(Problem::malformed(
            "a .npy file, which begins with \"\\x93NUMPY\"",
            format!("\"{}\"", first[..6].escape_ascii()),
        ));
    }
    let (start, len) = match (first[6], first[7]) {
        (1, 0) => (10, u32::from(u16::from_le_bytes([first[8], first[9]]))),
        (2 | 3, 0) => (
            12,
            u32::from_le_bytes([first[8], first[9], first[10], first[11]]),
        ),
        (major, minor) => {
            return Err(Problem::unsupported(
                format!("version {major}.{minor} of the .npy format"),
                "versions 1.0, 2.0 and 3.0 are; save it with numpy.save",
            ));
        }
    };
    if len > MAX_LEN {
        return Err(Problem::malformed(
            format!("a header of at most {MAX_LEN} bytes"),
            format!("{len}"),
        ));
    }
    Ok((start, len))
}

/// The element type of a `descr` such as `<f4`, and whether it is big endian.
fn element(descr: &str) -> Result<(DType, bool), Problem> {
    let unknown = || Problem::malformed("an element type such as '<f4'", format!("{descr:?}"));
    let order = descr.chars().next().ok_or_else(unknown)?;
    let code = &descr[order.len_utf8()..];
    let dtype = match code {
        "b1" => DType::Bool,
        "u1" => DType::U8,
        "i1" => DType::I8,
        "u2" => DType::U16,
        "i2" => DType::I16,
        "u4" => DType::U32,
        "i4" => DType::I32,
        "u8" => DType::U64,
        "i8" => DType::I64,
        "f2" => DType::F16,
        "f4" => DType::F32,
        "f8" => DType::F64,
        "O" => {
            return Err(Problem::unsupported(
                "an array of Python objects",
                "its elements are pickles, and reading a pickle runs code; save one array per field, of one element type",
            ));
        }
        other if other.starts_with(['c', 'f', 'i', 'u', 'S', 'U', 'V', 'M', 'm', 'a']) => {
            return Err(Problem::unsupported(
                format!("the element type {descr:?}"),
                "bool, integers and floats of up to 8 bytes are; convert with array.astype, or array.view for raw bits",
            ));
        }
        _ => return Err(unknown()),
    };
    match order {
        '<' => Ok((dtype, false)),
        '>' => Ok((dtype, dtype.size() > 1)),
        '|' if dtype.size() == 1 => Ok((dtype, false)),
        _ => Err(unknown()),
    }
}

/// The three entries.
struct Described {
    descr: String,
    fortran_order: bool,
    shape: Vec<usize>,
}

/// Reads just the Python that `numpy.save` writes.
struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a [u8]) -> Parser<'a> {
        Parser { text, at: 0 }
    }

    fn described(mut self) -> Result<Described, Problem> {
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        self.expect(b'{')?;
        while !self.take(b'}') {
            let key = self.string()?;
            self.expect(b':')?;
            let twice = match key.as_str() {
                "descr" => descr.replace(self.descr()?).is_some(),
                "fortran_order" => fortran_order.replace(self.boolean()?).is_some(),
                "shape" => shape.replace(self.shape()?).is_some(),
                _ => {
                    return Err(Problem::malformed(
                        "'descr', 'fortran_order' and 'shape'",
                        format!("{key:?}"),
                    ));
                }
            };
            if twice {
                return Err(Problem::malformed(
                    "each entry once",
                    format!("{key:?} twice"),
                ));
            }
            if !self.take(b',') {
                self.expect(b'}')?;
                break;
            }
        }
        self.skip_blanks();
        if self.at != self.text.len() {
            return Err(self.expected("the end of the header"));
        }
        let missing = |key: &str| Problem::malformed(format!("'{key}' in the header"), "none");
        Ok(Described {
            descr: descr.ok_or_else(|| missing("descr"))?,
            fortran_order: fortran_order.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
        })
    }

    fn descr(&mut self) -> Result<String, Problem> {
        if matches!(self.peek(), Some(b'[' | b'(')) {
            return Err(Problem::unsupported(
                "an array of records",
                "save one array per field, each of one element type",
            ));
        }
        self.string()
    }

    fn string(&mut self) -> Result<String, Problem> {
        let Some(quote @ (b'\'' | b'"')) = self.peek() else {
            return Err(self.expected("a string"));
        };
        let rest = &self.text[self.at + 1..];
        let len = rest
            .iter()
            .position(|&byte| byte == quote)
            .filter(|&len| rest[..len].iter().all(|&byte| byte != b'\\'))
            .ok_or_else(|| self.expected("a string without escapes"))?;
        if len > MAX_STRING_LEN {
            return Err(self.expected(&format!("a string of at most {MAX_STRING_LEN} bytes")));
        }
        self.at += len + 2;
        Ok(String::from_utf8_lossy(&rest[..len]).into_owned())
    }

    fn boolean(&mut self) -> Result<bool, Problem> {
        self.skip_blanks();
        for (word, meaning) in [(&b"True"[..], true), (b"False", false)] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(meaning);
            }
        }
        Err(self.expected("True or False"))
    }

    /// `()`, `(3,)` or `(3, 4)`; as in Python, `(3)` is none.
    fn shape(&mut self) -> Result<Vec<usize>, Problem> {
        self.expect(b'(')?;
        let mut shape = Vec::new();
        let mut after_comma = true;
        while !self.take(b')') {
            if !after_comma || shape.len() == MAX_DIMENSIONS {
                return Err(self.expected("a tuple of at most 64 sides"));
            }
            shape.push(self.side()?);
            after_comma = self.take(b',');
        }
        if shape.len() == 1 && !after_comma {
            return Err(self.expected("a comma after the only side"));
        }
        Ok(shape)
    }

    fn side(&mut self) -> Result<usize, Problem> {
        self.skip_blanks();
        let digits = self.text[self.at..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let side = std::str::from_utf8(&self.text[self.at..self.at + digits])
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| self.expected("a side that fits into 64 bits"))?;
        self.at += digits;
        // Python 2 wrote long numbers as `3L`.
        if self.text.get(self.at) == Some(&b'L') {
            self.at += 1;
        }
        Ok(side)
    }

    fn skip_blanks(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\n' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.skip_blanks();
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), Problem> {
        if self.take(byte) {
            Ok(())
        } else {
            Err(self.expected(&format!("'{}'", char::from(byte))))
        }
    }

    fn expected(&self, what: &str) -> Problem {
        let rest = &self.text[self.at..];
        let shown = &rest[..rest.len().min(24)];
        Problem::malformed(
            format!("{what} at byte {} of the header", self.at),
            format!("\"{}\"", shown.escape_ascii()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<(&str, bool, &[usize])>) {
        let found = Parser::new(text.as_bytes()).described().ok();
        let found = found.map(|found| (found.descr, found.fortran_order, found.shape));
        let expected = expected.map(|(descr, fortran_order, shape)| {
            (descr.to_owned(), fortran_order, shape.to_owned())
        });
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn what_numpy_writes_is_read() {
        check(
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }      \n",
            Some(("<f4", false, &[3, 4])),
        );
        check(
            "{'shape':(3,),\"descr\":\"|u1\",'fortran_order':True}",
            Some(("|u1", true, &[3])),
        );
        check(
            "{'descr': '<i8', 'fortran_order': False, 'shape': (3L, 5L)}",
            Some(("<i8", false, &[3, 5])),
        );
        check(
            "{'descr': '<i8', 'fortran_order': False, 'shape': ()}",
            Some(("<i8", false, &[])),
        );
    }

    #[test]
    fn anything_else_is_not() {
        for text in [
            "",
            "{",
            "{}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3 4)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
            "{'descr': '<f4', 'fortran_order': 0, 'shape': (3,)}",
            "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
            "{'descr': '<f4', 'fortran_order': False}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} more",
            "{'descr': '<f4' 'fortran_order': False, 'shape': (3,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'more': 1}",
            "{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (3,)}",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}",
            "{'descr': '<f4",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn a_message_does_not_quote_the_whole_header() {
        for text in [
            format!("{{'descr': '<{}'}}", "x".repeat(60_000)),
            format!("{{'{}': 1}}", "x".repeat(60_000)),
        ] {
            let Err(problem) = Parser::new(text.as_bytes()).described() else {
                panic!("it is read");
            };
            assert!(format!("{problem:?}").len() < 300);
        }
    }

    #[test]
    fn element_types_are_known_by_their_code() {
        assert_eq!(element("<f2").unwrap(), (DType::F16, false));
        assert_eq!(element(">i4").unwrap(), (DType::I32, true));
        assert_eq!(element("|b1").unwrap(), (DType::Bool, false));
        assert_eq!(element(">u1").unwrap(), (DType::U8, false));
        for unsupported in ["|O", "<c8", "<U5", "|S3", "<M8[ns]", "|V2", "<f16"] {
            let problem = element(unsupported).unwrap_err();
            assert!(
                matches!(problem, Problem::Unsupported { .. }),
                "{unsupported}"
            );
        }
        for malformed in ["", "f4", "|f4", "=f4", "<", "é", "<x4"] {
            let problem = element(malformed).unwrap_err();
            assert!(
                matches!(
                    problem,
                    Problem::Malformed { .. } | Problem::Unsupported { .. }
                ),
                "{malformed}"
            );
        }
    }
}
