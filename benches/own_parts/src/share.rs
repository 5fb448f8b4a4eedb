//! One copy of a list of nested dicts: the format of brimful-share, Arrow IPC and rkyv.
//!
//! Every sample is `{"id": int, "text": str, "boxes": float32 array, "meta": {"source": str, "split": str}}`. All formats
//! are written to a file in memory and read from a map of it.

use std::fs::File;
use std::hint::black_box;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::sync::Arc;

use arrow_array::builder::{
    Float32Builder, Int64Builder, LargeStringBuilder, ListBuilder, StringBuilder,
};
use arrow_array::{Array, ArrayRef, LargeStringArray, ListArray, RecordBatch, StructArray};
use arrow_buffer::Buffer;
use arrow_ipc::convert::fb_to_schema;
use arrow_ipc::reader::{FileDecoder, read_footer_length};
use arrow_ipc::root_as_footer;
use arrow_ipc::writer::FileWriter;
use brimful_share::{
    ArrayKind, ArrayNode, Dict, Item, Key, List, Segment, Slot, Storage, Writer, create,
};
use memmap2::Mmap;
use rkyv::rancor::Error;
use rkyv::{Archive, Serialize};

use crate::memory::peak_of;
use crate::rounds::{Random, case, compare};

const N_SAMPLES: usize = 20_000;
const N_READS: usize = 1000;

struct Sample {
    id: i64,
    text: String,
    boxes: Vec<[f32; 4]>,
    source: String,
    split: &'static str,
}

pub(crate) fn run() {
    let samples = samples();
    let tree = tree(&samples);
    let (segment, own_peak) = peak_of(|| write_own(&samples));
    let (arrow, arrow_peak) = peak_of(|| write_arrow(&samples));
    let (rkyv, rkyv_peak) = peak_of(|| write_rkyv(&tree));
    let (_, tree_bytes) = peak_of(|| self::tree(&samples));
    let len = |file: &File| file.metadata().expect("an open file").len();
    println!(
        "bytes: ours {}, Arrow IPC {}, rkyv {}",
        segment.bytes().len(),
        len(&arrow),
        len(&rkyv)
    );
    println!(
        "memory while it is written: ours {own_peak}, Arrow IPC {arrow_peak}, rkyv {rkyv_peak} beside the tree of \
         values that it writes, {tree_bytes}"
    );
    compare(
        &format!("write {N_SAMPLES} samples"),
        11,
        vec![
            case("ours", || drop(black_box(write_own(&samples)))),
            case("Arrow IPC", || drop(black_box(write_arrow(&samples)))),
            case("rkyv, the tree is there", || {
                drop(black_box(write_rkyv(&tree)))
            }),
        ],
    );

    let handle = segment.handle().expect("it is open");
    compare(
        "open",
        21,
        vec![
            case("ours", || {
                drop(black_box(Segment::open(&handle).expect("it is open")))
            }),
            case("Arrow IPC, validated", || {
                drop(black_box(open_arrow(&arrow, true)))
            }),
            case("Arrow IPC, believed", || {
                drop(black_box(open_arrow(&arrow, false)))
            }),
            case("rkyv, validated", || {
                let map = map(&rkyv);
                black_box(rkyv::access::<ArchivedValue, Error>(&map).expect("it was written so"));
            }),
            case("rkyv, believed", || {
                let map = map(&rkyv);
                black_box(believed(&map));
            }),
        ],
    );

    let mut random = Random(5);
    let order: Vec<usize> = (0..N_READS)
        .map(|_| random.below(N_SAMPLES as u64) as usize)
        .collect();
    let batch = open_arrow(&arrow, true);
    let rkyv_map = map(&rkyv);
    let expected: usize = order
        .iter()
        .map(|idx| samples[*idx].text.len() + samples[*idx].boxes.len() * 16)
        .sum();
    compare(
        &format!("read text and boxes of {N_READS} random samples"),
        101,
        vec![
            case("ours, every read checked", || {
                assert_eq!(read_own(&segment, &order), expected)
            }),
            case("Arrow IPC, validated at open", || {
                assert_eq!(read_arrow(&batch, &order), expected)
            }),
            case("rkyv, validated at open", || {
                assert_eq!(read_rkyv(believed(&rkyv_map), &order), expected)
            }),
        ],
    );
}

fn samples() -> Vec<Sample> {
    let mut random = Random(4);
    (0..N_SAMPLES)
        .map(|number| Sample {
            id: number as i64,
            text: (0..200 + random.below(800))
                .map(|_| char::from(b'a' + random.below(26) as u8))
                .collect(),
            boxes: (0..1 + random.below(12))
                .map(|_| [random.below(640) as f32; 4])
                .collect(),
            source: format!("images/{number:08}.jpg"),
            split: "train",
        })
        .collect()
}

fn memory() -> File {
    create(&Storage::Memory).expect("memory for a file").0
}

fn map(file: &File) -> Mmap {
    // SAFETY: nobody else has the file.
    unsafe { Mmap::map(file) }.expect("a file in memory")
}

fn write_own(samples: &[Sample]) -> Segment {
    let (file, id) = create(&Storage::Memory).expect("memory for a file");
    let mut writer = Writer::new(BufWriter::new(file), id).expect("into memory");
    let mut root = brimful_share::ListBuilder::default();
    for sample in samples {
        let mut meta = brimful_share::ListBuilder::default();
        meta.push_str(&mut writer, sample.source.as_bytes())
            .expect("into memory");
        meta.push_str(&mut writer, sample.split.as_bytes())
            .expect("into memory");
        let meta = own_dict(&mut writer, &["source", "split"], meta);
        let data = writer.begin_array().expect("into memory");
        writer
            .array_bytes(bytemuck::cast_slice(&sample.boxes))
            .expect("into memory");
        let shape = [sample.boxes.len() as u64, 4];
        let boxes = writer
            .end_array(ArrayKind::NumPy, data, "<f4", &shape)
            .expect("into memory");
        let mut values = brimful_share::ListBuilder::default();
        values.push_int(sample.id);
        values
            .push_str(&mut writer, sample.text.as_bytes())
            .expect("into memory");
        values.push_slot(boxes);
        values.push_slot(meta);
        let sample = own_dict(&mut writer, &["id", "text", "boxes", "meta"], values);
        root.push_slot(sample);
    }
    let root = root.finish(&mut writer).expect("into memory");
    let (out, header) = writer.finish(Slot::list(root)).expect("into memory");
    let file = out.into_inner().expect("into memory");
    Segment::seal(file, header).expect("a file in memory")
}

fn own_dict<W: Write>(
    writer: &mut Writer<W>,
    names: &[&str],
    values: brimful_share::ListBuilder,
) -> Slot {
    let values = values.finish(writer).expect("into memory");
    let key_set = names.join(",");
    let keys = writer.known_keys(key_set.as_bytes()).unwrap_or_else(|| {
        let mut keys = brimful_share::ListBuilder::default();
        let mut hashes = Vec::new();
        for name in names {
            keys.push_str(writer, name.as_bytes()).expect("into memory");
            hashes.push(writer.hash(&own_key(name)));
        }
        let keys = keys.finish(writer).expect("into memory");
        writer
            .keys(keys, &hashes, Some(key_set.as_bytes()))
            .expect("into memory")
    });
    writer.dict(keys, values).expect("into memory")
}

fn own_key(name: &str) -> Key {
    let mut key = Key::default();
    key.push_str(name.as_bytes());
    key
}

fn read_own(segment: &Segment, order: &[usize]) -> usize {
    let bytes = segment.bytes();
    let id = &segment.header().id;
    let Ok(Item::List(root)) = segment.header().root.item(bytes) else {
        panic!("a list was written");
    };
    let list = List::read(bytes, root).expect("it was written so");
    let (text_key, boxes_key) = (own_key("text"), own_key("boxes"));
    let mut total = 0;
    for idx in order {
        let Ok(Item::Dict(at)) = list.get(bytes, *idx) else {
            panic!("a dict was written");
        };
        let dict = Dict::read(bytes, at).expect("it was written so");
        let value = |key: &Key| {
            let at = dict
                .find(bytes, id, key)
                .expect("it was written so")
                .expect("it has the key");
            dict.values().get(bytes, at).expect("it was written so")
        };
        if let Item::Str(text) = value(&text_key) {
            total += str::from_utf8(text).expect("it was written so").len();
        }
        if let Item::Array(at) = value(&boxes_key) {
            total += ArrayNode::read(bytes, at)
                .expect("it was written so")
                .n_bytes as usize;
        }
    }
    total
}

fn write_arrow(samples: &[Sample]) -> File {
    let (mut id, mut text) = (Int64Builder::new(), LargeStringBuilder::new());
    let mut boxes = ListBuilder::new(Float32Builder::new());
    let (mut source, mut split) = (StringBuilder::new(), StringBuilder::new());
    for sample in samples {
        id.append_value(sample.id);
        text.append_value(&sample.text);
        boxes
            .values()
            .append_slice(bytemuck::cast_slice(&sample.boxes));
        boxes.append(true);
        source.append_value(&sample.source);
        split.append_value(sample.split);
    }
    let meta = StructArray::try_from(vec![
        ("source", Arc::new(source.finish()) as ArrayRef),
        ("split", Arc::new(split.finish()) as ArrayRef),
    ])
    .expect("columns of one length");
    let batch = RecordBatch::try_from_iter([
        ("id", Arc::new(id.finish()) as ArrayRef),
        ("text", Arc::new(text.finish()) as ArrayRef),
        ("boxes", Arc::new(boxes.finish()) as ArrayRef),
        ("meta", Arc::new(meta) as ArrayRef),
    ])
    .expect("columns of one length");
    let mut writer =
        FileWriter::try_new(BufWriter::new(memory()), &batch.schema()).expect("into memory");
    writer.write(&batch).expect("into memory");
    let out = writer.into_inner().expect("into memory");
    out.into_inner().expect("into memory")
}

fn open_arrow(file: &File, is_validated: bool) -> RecordBatch {
    let buffer = Buffer::from(bytes::Bytes::from_owner(map(file)));
    let trailer = buffer.len() - 10;
    let footer_len = read_footer_length(buffer[trailer..].try_into().expect("ten bytes"))
        .expect("it was written so");
    let footer = root_as_footer(&buffer[trailer - footer_len..trailer]).expect("it was written so");
    let schema = fb_to_schema(footer.schema().expect("it was written so"));
    let mut decoder = FileDecoder::new(Arc::new(schema), footer.version());
    if !is_validated {
        // SAFETY: it was written above.
        decoder = unsafe { decoder.with_skip_validation(true) };
    }
    let block = footer.recordBatches().expect("it was written so").get(0);
    let len = block.metaDataLength() as usize + block.bodyLength() as usize;
    let data = buffer.slice_with_length(block.offset() as usize, len);
    decoder
        .read_record_batch(block, &data)
        .expect("it was written so")
        .expect("it was written so")
}

fn read_arrow(batch: &RecordBatch, order: &[usize]) -> usize {
    let column = |name| {
        batch
            .column_by_name(name)
            .expect("it was written so")
            .as_any()
    };
    let text: &LargeStringArray = column("text").downcast_ref().expect("it was written so");
    let boxes: &ListArray = column("boxes").downcast_ref().expect("it was written so");
    order
        .iter()
        .map(|idx| text.value(*idx).len() + boxes.value(*idx).len() * 4)
        .sum()
}

/// Values of Python, whose types are known only when they are read.
#[derive(Archive, Serialize)]
#[rkyv(serialize_bounds(__S: rkyv::ser::Writer + rkyv::ser::Allocator, __S::Error: rkyv::rancor::Source))]
#[rkyv(bytecheck(bounds(__C: rkyv::validation::ArchiveContext)))]
enum Value {
    Int(i64),
    Str(String),
    List(#[rkyv(omit_bounds)] Vec<Value>),
    Dict(#[rkyv(omit_bounds)] Vec<Pair>),
    Array {
        dtype: String,
        shape: Vec<u64>,
        data: Vec<u8>,
    },
}

#[derive(Archive, Serialize)]
#[rkyv(serialize_bounds(__S: rkyv::ser::Writer + rkyv::ser::Allocator, __S::Error: rkyv::rancor::Source))]
#[rkyv(bytecheck(bounds(__C: rkyv::validation::ArchiveContext, __C::Error: rkyv::rancor::Source)))]
struct Pair {
    key: String,
    #[rkyv(omit_bounds)]
    value: Value,
}

fn tree(samples: &[Sample]) -> Value {
    let pair = |key: &str, value| Pair {
        key: key.to_owned(),
        value,
    };
    let samples = samples.iter().map(|sample| {
        Value::Dict(vec![
            pair("id", Value::Int(sample.id)),
            pair("text", Value::Str(sample.text.clone())),
            pair(
                "boxes",
                Value::Array {
                    dtype: "<f4".to_owned(),
                    shape: vec![sample.boxes.len() as u64, 4],
                    data: bytemuck::cast_slice(&sample.boxes).to_vec(),
                },
            ),
            pair(
                "meta",
                Value::Dict(vec![
                    pair("source", Value::Str(sample.source.clone())),
                    pair("split", Value::Str(sample.split.to_owned())),
                ]),
            ),
        ])
    });
    Value::List(samples.collect())
}

fn write_rkyv(tree: &Value) -> File {
    let bytes = rkyv::to_bytes::<Error>(tree).expect("into memory");
    let mut file = memory();
    file.write_all(&bytes).expect("into memory");
    file.seek(SeekFrom::Start(0)).expect("a file");
    file
}

fn believed(bytes: &[u8]) -> &ArchivedValue {
    // SAFETY: it was written above.
    unsafe { rkyv::access_unchecked::<ArchivedValue>(bytes) }
}

fn read_rkyv(root: &ArchivedValue, order: &[usize]) -> usize {
    let ArchivedValue::List(list) = root else {
        panic!("a list was written");
    };
    let mut total = 0;
    for idx in order {
        let ArchivedValue::Dict(pairs) = &list[*idx] else {
            panic!("a dict was written");
        };
        let value = |key: &str| {
            &pairs
                .iter()
                .find(|pair| pair.key == *key)
                .expect("it has the key")
                .value
        };
        if let ArchivedValue::Str(text) = value("text") {
            total += text.len();
        }
        if let ArchivedValue::Array { data, .. } = value("boxes") {
            total += data.len();
        }
    }
    total
}
