//! Entries of index caches: the numbers of seven bits per byte that brimful had, beside postcard.

use std::hint::black_box;
use std::io::{self, BufReader, Read, Write};

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize, Serializer};

use crate::rounds::{Random, case, compare};

struct Member {
    gap: u64,
    len: u64,
    name: String,
}

pub(crate) fn run() {
    let mut random = Random(3);
    let members: Vec<Member> = (0..200_000)
        .map(|number| Member {
            gap: 512 + random.below(512),
            len: 20_000 + random.below(200_000),
            name: format!("train/{:08}.{}", number / 2, ["jpg", "cls"][number % 2]),
        })
        .collect();
    let lines: Vec<u64> = (0..2_000_000).map(|_| 1 + random.below(900)).collect();
    let written = [
        ("tar, ours", own_members(&members)),
        ("tar, postcard", postcard_members(&members)),
        ("lines, ours", own_lines(&lines)),
        ("lines, postcard", postcard_lines(&lines)),
    ];
    for (name, bytes) in &written {
        let plain = inflated(bytes);
        println!("{name}: {} bytes, {plain} before gzip", bytes.len());
    }
    let [
        (_, own_tar),
        (_, their_tar),
        (_, own_starts),
        (_, their_starts),
    ] = &written;
    compare(
        "write 200,000 members",
        15,
        vec![
            case("ours", || drop(black_box(own_members(&members)))),
            case("postcard", || drop(black_box(postcard_members(&members)))),
        ],
    );
    compare(
        "read 200,000 members",
        25,
        vec![
            case("ours", || read_own_members(own_tar)),
            case("postcard", || read_postcard_members(their_tar)),
        ],
    );
    compare(
        "write 2,000,000 lines",
        15,
        vec![
            case("ours", || drop(black_box(own_lines(&lines)))),
            case("postcard", || drop(black_box(postcard_lines(&lines)))),
        ],
    );
    compare(
        "read 2,000,000 lines",
        25,
        vec![
            case("ours", || read_own_lines(own_starts)),
            case("postcard", || read_postcard_lines(their_starts)),
        ],
    );
}

fn inflated(bytes: &[u8]) -> u64 {
    io::copy(&mut GzDecoder::new(bytes), &mut io::sink()).expect("it was written so")
}

struct Own(io::BufWriter<GzEncoder<Vec<u8>>>);

impl Own {
    fn new() -> Own {
        Own(io::BufWriter::new(GzEncoder::new(
            Vec::new(),
            Compression::fast(),
        )))
    }

    fn number(&mut self, mut number: u64) {
        let mut bytes = [0; 10];
        let mut len = 0;
        loop {
            let more = number >> 7;
            bytes[len] = (number & 0x7f) as u8 | if more > 0 { 0x80 } else { 0 };
            len += 1;
            number = more;
            if more == 0 {
                break;
            }
        }
        self.0.write_all(&bytes[..len]).expect("into memory");
    }

    fn finish(mut self) -> Vec<u8> {
        self.number(0);
        let encoder = self
            .0
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
            .expect("into memory");
        encoder.finish().expect("into memory")
    }
}

fn own_members(members: &[Member]) -> Vec<u8> {
    let mut own = Own::new();
    for member in members {
        own.number(member.gap + 1);
        own.number(member.len);
        own.number(member.name.len() as u64);
        own.0
            .write_all(member.name.as_bytes())
            .expect("into memory");
    }
    own.finish()
}

fn own_lines(lines: &[u64]) -> Vec<u8> {
    let mut own = Own::new();
    for line in lines {
        own.number(line + 1);
    }
    own.finish()
}

struct OwnReader<'a>(BufReader<GzDecoder<&'a [u8]>>);

impl OwnReader<'_> {
    fn new(bytes: &[u8]) -> OwnReader<'_> {
        OwnReader(BufReader::new(GzDecoder::new(bytes)))
    }

    fn number(&mut self) -> u64 {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let mut byte = [0];
            self.0.read_exact(&mut byte).expect("it was written so");
            let bits = u64::from(byte[0] & 0x7f);
            assert!(bits << shift >> shift == bits);
            number |= bits << shift;
            if byte[0] & 0x80 == 0 {
                return number;
            }
        }
        unreachable!("a number has at most ten bytes")
    }
}

fn read_own_members(bytes: &[u8]) {
    let mut own = OwnReader::new(bytes);
    loop {
        let gap = own.number();
        if gap == 0 {
            return;
        }
        let (len, name_len) = (own.number(), own.number());
        let mut name = vec![0; name_len as usize];
        own.0.read_exact(&mut name).expect("it was written so");
        black_box((gap - 1, len, name));
    }
}

fn read_own_lines(bytes: &[u8]) {
    let mut own = OwnReader::new(bytes);
    loop {
        match own.number() {
            0 => return,
            more => black_box(more - 1),
        };
    }
}

#[derive(Serialize, Deserialize)]
struct IndexEntry<'a> {
    gap: u64,
    len: u64,
    #[serde(serialize_with = "in_one_piece")]
    name: &'a [u8],
}

fn in_one_piece<S: Serializer>(bytes: &&[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

struct Postcard {
    out: io::BufWriter<GzEncoder<Vec<u8>>>,
    scratch: Vec<u8>,
}

impl Postcard {
    fn new() -> Postcard {
        Postcard {
            out: Own::new().0,
            scratch: Vec::new(),
        }
    }

    fn value(&mut self, value: &impl Serialize) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        self.scratch = postcard::to_extend(value, scratch).expect("into memory");
        self.out.write_all(&self.scratch).expect("into memory");
    }

    fn finish(mut self) -> Vec<u8> {
        self.value(&None::<()>);
        let encoder = self
            .out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
            .expect("into memory");
        encoder.finish().expect("into memory")
    }
}

fn postcard_members(members: &[Member]) -> Vec<u8> {
    let mut out = Postcard::new();
    for member in members {
        out.value(&Some(IndexEntry {
            gap: member.gap,
            len: member.len,
            name: member.name.as_bytes(),
        }));
    }
    out.finish()
}

fn postcard_lines(lines: &[u64]) -> Vec<u8> {
    let mut out = Postcard::new();
    for line in lines {
        out.value(&Some(line));
    }
    out.finish()
}

fn read_postcard_members(bytes: &[u8]) {
    let mut scratch = vec![0; 1 << 20];
    let mut bytes = BufReader::new(GzDecoder::new(bytes));
    loop {
        let source = (&mut bytes, &mut scratch[..]);
        let (entry, _): (Option<IndexEntry<'_>>, _) =
            postcard::from_io(source).expect("it was written so");
        let Some(entry) = entry else { return };
        black_box((entry.gap, entry.len, entry.name.to_vec()));
    }
}

fn read_postcard_lines(bytes: &[u8]) {
    let mut bytes = BufReader::new(GzDecoder::new(bytes));
    loop {
        let (entry, _): (Option<u64>, _) =
            postcard::from_io((&mut bytes, &mut [][..])).expect("it was written so");
        match entry {
            None => return,
            Some(line) => black_box(line),
        };
    }
}
