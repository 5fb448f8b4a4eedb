//! Where the columns of one record batch lie in its file, checked against its body.

use arrow_ipc::RecordBatch;

use crate::problem::Problem;
use crate::sources::arrow::layout::Column;
use crate::sources::arrow::message::Frame;
use crate::sources::arrow::nodes::{Layer, Leaf, Node};

/// One array of a record batch: places in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrayOffsets {
    /// Its elements.
    pub(super) len: u64,
    /// One bit per element, set where there is one; nothing where there are no nulls.
    pub(super) validity: Option<u64>,
    /// Of a list or of bytes of varying length: one more than elements.
    pub(super) offsets: u64,
    pub(super) data: u64,
    pub(super) data_len: u64,
}

/// Adds the spots of every column, its layers and then its leaf, and gives the number of rows.
pub(super) fn locate(
    batch: &RecordBatch<'_>,
    frame: Frame,
    columns: &[Column],
    spots: &mut Vec<ArrayOffsets>,
) -> Result<u64, Problem> {
    if batch.compression().is_some() {
        return Err(Problem::unsupported(
            "a compressed record batch",
            "a sample of it cannot be read alone; write the file without compression, as pyarrow.ipc and datasets do \
             unless told otherwise, and pyarrow.feather with compression='uncompressed'",
        ));
    }
    let rows = count("rows", batch.length())?;
    let table = Table { batch, frame };
    for column in columns {
        // Elements that the parent needs of the child.
        let mut needed = rows;
        for layer in &column.layers {
            let spot = table.layer(layer, needed)?;
            needed = match layer.form {
                Layer::Struct => spot.len,
                Layer::Fixed(side) => times(spot.len, side)?,
                // The offsets say it, and are checked where they are used.
                Layer::Varying(_) => 0,
            };
            spots.push(spot);
        }
        spots.push(table.leaf(&column.leaf, needed)?);
    }
    Ok(rows)
}

struct Table<'a> {
    batch: &'a RecordBatch<'a>,
    frame: Frame,
}

impl Table<'_> {
    fn layer(&self, layer: &Node<Layer>, needed: u64) -> Result<ArrayOffsets, Problem> {
        let mut spot = self.array(layer.number, layer.buffer, needed)?;
        if let Layer::Varying(offsets) = layer.form {
            let bytes = offsets_bytes(spot.len, offsets.size())?;
            spot.offsets = self.buffer(layer.buffer + 1, bytes)?.0;
        }
        Ok(spot)
    }

    fn leaf(&self, leaf: &Node<Leaf>, needed: u64) -> Result<ArrayOffsets, Problem> {
        let mut spot = self.array(leaf.number, leaf.buffer, needed)?;
        let mut data_buffer = leaf.buffer + 1;
        let bytes = match leaf.form {
            Leaf::Bits => spot.len.div_ceil(8),
            Leaf::Number(dtype) => times(spot.len, dtype.size())?,
            Leaf::Binary(width) => times(spot.len, width)?,
            Leaf::Varying { offsets, .. } => {
                let bytes = offsets_bytes(spot.len, offsets.size())?;
                spot.offsets = self.buffer(data_buffer, bytes)?.0;
                data_buffer += 1;
                0
            }
        };
        (spot.data, spot.data_len) = self.buffer(data_buffer, bytes)?;
        Ok(spot)
    }

    /// The length and the nulls of an array.
    fn array(&self, node: usize, buffer: usize, needed: u64) -> Result<ArrayOffsets, Problem> {
        let nodes = self.batch.nodes();
        let Some(nodes) = nodes.filter(|nodes| node < nodes.len()) else {
            return Err(Problem::malformed(
                format!("a record batch of more than {node} arrays"),
                format!("{}", nodes.map_or(0, |nodes| nodes.len())),
            ));
        };
        let found = nodes.get(node);
        let len = count("elements", found.length())?;
        if len < needed {
            return Err(Problem::malformed(
                format!("an array of {needed} elements"),
                format!("{len}"),
            ));
        }
        let validity = match count("nulls", found.null_count())? {
            0 => None,
            _ => Some(self.buffer(buffer, len.div_ceil(8))?.0),
        };
        Ok(ArrayOffsets {
            len,
            validity,
            offsets: 0,
            data: 0,
            data_len: 0,
        })
    }

    /// Where a buffer begins in the file, and its bytes.
    fn buffer(&self, number: usize, needed: u64) -> Result<(u64, u64), Problem> {
        let buffers = self.batch.buffers();
        let Some(buffers) = buffers.filter(|buffers| number < buffers.len()) else {
            return Err(Problem::malformed(
                format!("a record batch of more than {number} buffers"),
                format!("{}", buffers.map_or(0, |buffers| buffers.len())),
            ));
        };
        let found = buffers.get(number);
        let start = count("bytes before a buffer", found.offset())?;
        let len = count("bytes of a buffer", found.length())?;
        if start
            .checked_add(len)
            .is_none_or(|end| end > self.frame.body_len)
        {
            return Err(Problem::malformed(
                format!("a buffer within a body of {} bytes", self.frame.body_len),
                format!("{len} bytes at {start}"),
            ));
        }
        if len < needed {
            return Err(Problem::malformed(
                format!("a buffer of {needed} bytes"),
                format!("{len}"),
            ));
        }
        // Both are within the file.
        Ok((self.frame.body_start + start, len))
    }
}

fn times(elements: u64, each: usize) -> Result<u64, Problem> {
    elements
        .checked_mul(each as u64)
        .ok_or_else(|| Problem::malformed("elements that can be counted", format!("{elements}")))
}

/// Bytes of the offsets of so many elements; a buffer of no elements may be left out.
fn offsets_bytes(elements: u64, size: u64) -> Result<u64, Problem> {
    if elements == 0 {
        return Ok(0);
    }
    elements
        .checked_add(1)
        .and_then(|offsets| offsets.checked_mul(size))
        .ok_or_else(|| Problem::malformed("elements that can be counted", format!("{elements}")))
}

fn count(what: &str, found: i64) -> Result<u64, Problem> {
    u64::try_from(found).map_err(|_| {
        Problem::malformed(
            format!("a number of {what}, zero or more"),
            format!("{found}"),
        )
    })
}
