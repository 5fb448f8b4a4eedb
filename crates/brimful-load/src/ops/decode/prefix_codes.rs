//! How much memory the prefix codes of a lossless WebP picture take, found before any of it is taken.
//!
//! Such a picture may bring 65,536 groups of five codes, one for each block of 4x4 pixels, and a code of a few bytes in the
//! file becomes a table of kilobytes: 17 MB of file would be 8 GB of tables. The decoder knows no limit. Here its way is
//! gone once with nothing kept but lengths: over the small images that steer it, for how many groups they name, then
//! over the codes of all groups. Pixels are not needed for that, but for the numbers of groups, and those are literals.

/// What the decoder (image-webp 0.2) takes for a group of codes, besides tables: five of 56 bytes each, in a list that
/// doubles while the old one is still there.
const GROUP_BYTES: u64 = 3 * 5 * 56;

/// Symbols of the five codes: green and lengths, red, blue, alpha, distances.
const ALPHABETS: [usize; 5] = [280, 256, 256, 256, 40];

/// The longest code, and the length up to which a table is made of it.
const MAX_CODE_BITS: usize = 15;
const TABLE_BITS: usize = 10;

/// The order in which the lengths of the code for lengths are written.
const ORDER: [usize; 19] = [
    17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
];

/// Bytes for all codes of the picture `data`, or somewhat more than `most`. Nothing where it is broken.
pub(super) fn bytes(data: &[u8], most: u64) -> Option<u64> {
    let mut walk = CodeReader {
        bits: Bits { data, at: 0 },
        lengths: Vec::new(),
    };
    walk.picture(most)
}

struct CodeReader<'a> {
    bits: Bits<'a>,
    /// Of the code that is being read.
    lengths: Vec<u8>,
}

impl CodeReader<'_> {
    fn picture(&mut self, most: u64) -> Option<u64> {
        // The sign of the format.
        self.bits.take(8)?;
        let mut width = self.bits.take(14)? + 1;
        let height = self.bits.take(14)? + 1;
        // Whether there is transparency, and the version.
        self.bits.take(4)?;
        let mut seen = [false; 4];
        while self.bits.take(1)? == 1 {
            let transform = self.bits.take(2)?;
            // Each once; the decoder says the rest.
            if std::mem::replace(&mut seen[transform], true) {
                return None;
            }
            match transform {
                0 | 1 => {
                    let block = self.bits.take(3)? + 2;
                    self.small_image(blocks(width, block), blocks(height, block))?;
                }
                3 => {
                    let colors = self.bits.take(8)? + 1;
                    self.small_image(colors, 1)?;
                    let packed = match colors {
                        0..=2 => 3,
                        3..=4 => 2,
                        5..=16 => 1,
                        _ => 0,
                    };
                    width = blocks(width, packed);
                }
                _ => {}
            }
        }
        let cache = self.color_cache()?;
        let mut n_groups = 1;
        if self.bits.take(1)? == 1 {
            let block = self.bits.take(3)? + 2;
            n_groups += self.small_image(blocks(width, block), blocks(height, block))?;
        }
        let mut bytes = GROUP_BYTES.saturating_mul(n_groups as u64);
        for _ in 0..n_groups {
            for symbols in with_cache(cache) {
                bytes = bytes.saturating_add(self.code(symbols)?.bytes());
            }
            if bytes > most {
                break;
            }
        }
        Some(bytes)
    }

    /// Passes over an image of one group of codes, and gives the largest of red and green as one number.
    fn small_image(&mut self, width: usize, height: usize) -> Option<usize> {
        let cache = self.color_cache()?;
        let [green, red, blue, alpha, distance] = with_cache(cache);
        let green = self.code(green)?;
        let red = self.code(red)?;
        let blue = self.code(blue)?;
        let alpha = self.code(alpha)?;
        let distance = self.code(distance)?;
        let mut left = width * height;
        let mut largest = 0;
        while left > 0 {
            let step = match green.read(&mut self.bits)? {
                color @ ..256 => {
                    largest = largest.max(red.read(&mut self.bits)? << 8 | color);
                    blue.read(&mut self.bits)?;
                    alpha.read(&mut self.bits)?;
                    if [&green, &red, &blue, &alpha]
                        .into_iter()
                        .all(Code::is_single)
                    {
                        // All pixels are alike, and take no bits.
                        break;
                    }
                    1
                }
                length @ 256..280 => {
                    let length = self.extended(length - 256)?;
                    let distance = distance.read(&mut self.bits)?;
                    self.extended(distance)?;
                    length
                }
                // A color from before.
                _ => 1,
            };
            left = left.checked_sub(step)?;
        }
        Some(largest)
    }

    fn color_cache(&mut self) -> Option<usize> {
        match self.bits.take(1)? {
            0 => Some(0),
            _ => self.bits.take(4).filter(|bits| (1..=11).contains(bits)),
        }
    }

    /// A length or a distance: a symbol, and bits that go with it.
    fn extended(&mut self, symbol: usize) -> Option<usize> {
        if symbol < 4 {
            return Some(symbol + 1);
        }
        let bits = (symbol - 2) >> 1;
        Some(((2 + (symbol & 1)) << bits) + self.bits.take(bits)? + 1)
    }

    fn code(&mut self, symbols: usize) -> Option<Code> {
        if self.bits.take(1)? == 1 {
            let has_two = self.bits.take(1)? == 1;
            let width = 1 + 7 * self.bits.take(1)?;
            let first = self.bits.take(width)?;
            if !has_two {
                return Some(Code::Single(first));
            }
            return Some(Code::Two([first, self.bits.take(8)?]));
        }
        self.lengths.clear();
        self.lengths.resize(ORDER.len(), 0);
        for &at in &ORDER[..4 + self.bits.take(4)?] {
            self.lengths[at] = u8::try_from(self.bits.take(3)?).ok()?;
        }
        let of_lengths = Code::of(&self.lengths)?;
        let mut left = symbols;
        if self.bits.take(1)? == 1 {
            let width = 2 + 2 * self.bits.take(3)?;
            left = 2 + self.bits.take(width)?;
        }
        self.lengths.clear();
        let mut before = 8;
        while self.lengths.len() < symbols && left > 0 {
            left -= 1;
            let (repeated, times) = match of_lengths.read(&mut self.bits)? {
                16 => (before, 3 + self.bits.take(2)?),
                17 => (0, 3 + self.bits.take(3)?),
                18 => (0, 11 + self.bits.take(7)?),
                length => (u8::try_from(length).ok()?, 1),
            };
            if repeated != 0 {
                before = repeated;
            }
            if self.lengths.len() + times > symbols {
                return None;
            }
            self.lengths.resize(self.lengths.len() + times, repeated);
        }
        Code::of(&self.lengths)
    }
}

/// The symbols of the five codes where there are colors from before.
fn with_cache(cache: usize) -> [usize; 5] {
    let mut symbols = ALPHABETS;
    if cache > 0 {
        symbols[0] += 1 << cache;
    }
    symbols
}

/// Blocks of `1 << bits` pixels along a side.
fn blocks(side: usize, bits: usize) -> usize {
    side.div_ceil(1 << bits)
}

/// A prefix code.
enum Code {
    /// It takes no bits.
    Single(usize),
    /// One bit each.
    Two([usize; 2]),
    /// Symbols in the order of their codes, and how many there are of each length.
    Many {
        counts: [usize; MAX_CODE_BITS + 1],
        symbols: Vec<u16>,
    },
}

impl Code {
    /// The code of these lengths, zero where a symbol has none. Nothing where they leave codes over or need too many.
    fn of(lengths: &[u8]) -> Option<Code> {
        let mut counts = [0; MAX_CODE_BITS + 1];
        for &length in lengths {
            *counts.get_mut(usize::from(length))? += 1;
        }
        counts[0] = 0;
        let n_symbols: usize = counts.iter().sum();
        if n_symbols == 1 {
            let only = lengths.iter().position(|&length| length != 0)?;
            return Some(Code::Single(only));
        }
        let mut free = 1;
        for &count in &counts[1..] {
            free = (2_usize * free).checked_sub(count)?;
        }
        if free != 0 {
            return None;
        }
        let mut starts = [0; MAX_CODE_BITS + 1];
        for length in 1..MAX_CODE_BITS {
            starts[length + 1] = starts[length] + counts[length];
        }
        let mut symbols = vec![0; n_symbols];
        for (symbol, &length) in lengths.iter().enumerate() {
            if length != 0 {
                let start = &mut starts[usize::from(length)];
                symbols[*start] = u16::try_from(symbol).ok()?;
                *start += 1;
            }
        }
        Some(Code::Many { counts, symbols })
    }

    fn is_single(&self) -> bool {
        matches!(self, Code::Single(_))
    }

    fn read(&self, bits: &mut Bits<'_>) -> Option<usize> {
        match self {
            Code::Single(symbol) => Some(*symbol),
            Code::Two(symbols) => Some(symbols[bits.take(1)?]),
            Code::Many { counts, symbols } => {
                // Codes of one length follow each other, and those of the next begin at twice what comes after them.
                let (mut code, mut first, mut before) = (0, 0, 0);
                for &count in &counts[1..] {
                    code |= bits.take(1)?;
                    if code < first + count {
                        return symbols.get(before + code - first).copied().map(usize::from);
                    }
                    before += count;
                    first = (first + count) << 1;
                    code <<= 1;
                }
                None
            }
        }
    }

    /// Bytes that the decoder takes for it: a table of words for short codes, two nodes of a tree for each longer one.
    fn bytes(&self) -> u64 {
        const ALLOCATION: usize = 32;
        let bytes = match self {
            Code::Single(_) => 0,
            Code::Two(_) => 3 * 16 + 2 * 4 + 2 * ALLOCATION,
            Code::Many { counts, .. } => {
                let longest = counts.iter().rposition(|&count| count > 0).unwrap_or(0);
                let n_long: usize = counts[TABLE_BITS + 1..].iter().sum();
                (4 << longest.min(TABLE_BITS)) + 2 * 16 * n_long + 2 * ALLOCATION
            }
        };
        bytes as u64
    }
}

/// Bits from the lowest of each byte on.
struct Bits<'a> {
    data: &'a [u8],
    /// In bits.
    at: usize,
}

impl Bits<'_> {
    /// The next bits, at most 24; nothing where so many are not there.
    fn take(&mut self, count: usize) -> Option<usize> {
        let end = self.at + count;
        if end > self.data.len() * 8 {
            return None;
        }
        let mut word = [0; 4];
        let bytes = &self.data[self.at / 8..];
        let len = bytes.len().min(word.len());
        word[..len].copy_from_slice(&bytes[..len]);
        let bits = u32::from_le_bytes(word) >> (self.at % 8);
        self.at = end;
        Some((bits & ((1 << count) - 1)) as usize)
    }
}
