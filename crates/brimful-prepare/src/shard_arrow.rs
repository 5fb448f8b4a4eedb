//! Shards of everything else: Arrow IPC files, uncompressed, so that a loader can map them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{ArrayRef, BooleanArray, FixedSizeListArray, PrimitiveArray, RecordBatch};
use arrow_buffer::{Buffer, MutableBuffer, ScalarBuffer};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use brimful_load::DType;

use crate::digest::DigestWriter;
use crate::error::PrepareError;
use crate::manifest::ShardEntry;
use crate::preparation::RecordField;
use crate::run_file::WRITE_BUFFER;
use crate::shard_writer::ShardWriter;
use crate::work::{AttemptFile, WorkDir};

/// Bytes of a record batch, or one sample.
const BATCH_BYTES: usize = 1 << 20;

pub(crate) struct ArrowShard {
    name: String,
    fields: Vec<RecordField>,
    schema: Arc<Schema>,
    file: FileWriter<BufWriter<DigestWriter<File>>>,
    attempt: AttemptFile,
    /// Records that are not written yet.
    waiting: Vec<u8>,
    record_bytes: usize,
    samples: u64,
}

impl ArrowShard {
    pub(crate) fn create(
        work: &WorkDir,
        shard: u64,
        fields: &[RecordField],
    ) -> Result<ArrowShard, PrepareError> {
        let name = format!("shard-{shard:05}.arrow");
        let (attempt, file) = AttemptFile::create(work, &work.out().join(&name))?;
        let columns = fields.iter().map(column).collect::<Result<Vec<_>, _>>()?;
        let schema = Arc::new(Schema::new(columns));
        let file = BufWriter::with_capacity(WRITE_BUFFER, DigestWriter::new(file));
        let file =
            FileWriter::try_new(file, &schema).map_err(|error| unwritable(&attempt, error))?;
        Ok(ArrowShard {
            name,
            record_bytes: fields.iter().map(|field| field.form.bytes()).sum(),
            fields: fields.to_vec(),
            schema,
            file,
            attempt,
            waiting: Vec::new(),
            samples: 0,
        })
    }

    fn flush(&mut self) -> Result<(), PrepareError> {
        let rows = self.waiting.len() / self.record_bytes.max(1);
        if rows == 0 {
            return Ok(());
        }
        let mut start = 0;
        let mut columns = Vec::with_capacity(self.fields.len());
        for field in &self.fields {
            let bytes = field.form.bytes();
            let mut values = MutableBuffer::with_capacity(rows * bytes);
            for record in self.waiting.chunks_exact(self.record_bytes) {
                values.extend_from_slice(&record[start..start + bytes]);
            }
            start += bytes;
            columns.push(array(field, rows, values.into()));
        }
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        let written = batch.and_then(|batch| self.file.write(&batch));
        written.map_err(|error| unwritable(&self.attempt, error))?;
        self.waiting.clear();
        Ok(())
    }
}

impl ShardWriter for ArrowShard {
    fn write(&mut self, record: &[u8]) -> Result<(), PrepareError> {
        if self.waiting.len() + record.len() > BATCH_BYTES {
            self.flush()?;
        }
        self.waiting.extend_from_slice(record);
        self.samples += 1;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<ShardEntry, PrepareError> {
        self.flush()?;
        let finished = self
            .file
            .finish()
            .and_then(|()| Ok(self.file.get_mut().flush()?));
        finished.map_err(|error| unwritable(&self.attempt, error))?;
        let file = self.file.get_mut().get_mut();
        let entry = ShardEntry {
            file: self.name,
            samples: self.samples,
            bytes: file.bytes(),
            digest: file.digest(),
        };
        self.attempt.commit(file.inner())?;
        Ok(entry)
    }
}

fn unwritable(attempt: &AttemptFile, error: ArrowError) -> PrepareError {
    attempt.unwritable(match error {
        ArrowError::IoError(_, cause) => cause,
        other => std::io::Error::other(other),
    })
}

fn data_type(dtype: DType) -> Option<DataType> {
    Some(match dtype {
        DType::Bool => DataType::Boolean,
        DType::U8 => DataType::UInt8,
        DType::I8 => DataType::Int8,
        DType::U16 => DataType::UInt16,
        DType::I16 => DataType::Int16,
        DType::U32 => DataType::UInt32,
        DType::I32 => DataType::Int32,
        DType::U64 => DataType::UInt64,
        DType::I64 => DataType::Int64,
        DType::F16 => DataType::Float16,
        DType::F32 => DataType::Float32,
        DType::F64 => DataType::Float64,
        DType::BF16 => return None,
    })
}

/// A column whose samples have the shape of the field.
fn column(field: &RecordField) -> Result<Field, PrepareError> {
    let dtype = field.form.dtype();
    let Some(item) = data_type(dtype) else {
        return Err(PrepareError::Setting {
            name: "dtype",
            expected: "one that Arrow has, for example float32".to_owned(),
            found: format!("{dtype} in the field {:?}", field.name),
        });
    };
    let shape = field.form.shape();
    if shape.is_empty() {
        return Ok(Field::new(&field.name, item, false));
    }
    let item = Arc::new(Field::new("item", item, false));
    let count = i32::try_from(field.form.elements()).map_err(|_| PrepareError::Setting {
        name: "shape",
        expected: "fewer than 2^31 elements in a sample".to_owned(),
        found: field.form.to_string(),
    })?;
    let list = Field::new(&field.name, DataType::FixedSizeList(item, count), false);
    if shape.len() == 1 {
        return Ok(list);
    }
    // The canonical extension of Arrow for arrays of one shape.
    let sides: Vec<String> = shape.iter().map(ToString::to_string).collect();
    Ok(list.with_metadata(HashMap::from([
        (
            "ARROW:extension:name".to_owned(),
            "arrow.fixed_shape_tensor".to_owned(),
        ),
        (
            "ARROW:extension:metadata".to_owned(),
            format!("{{\"shape\":[{}]}}", sides.join(",")),
        ),
    ])))
}

fn array(field: &RecordField, rows: usize, values: Buffer) -> ArrayRef {
    fn of<T: ArrowPrimitiveType>(values: Buffer, count: usize) -> ArrayRef {
        let scalars = ScalarBuffer::<T::Native>::new(values, 0, count);
        Arc::new(PrimitiveArray::<T>::new(scalars, None))
    }
    let form = &field.form;
    let count = rows * form.elements();
    let items: ArrayRef = match form.dtype() {
        DType::Bool => {
            let bits: Vec<bool> = values.iter().map(|byte| *byte != 0).collect();
            Arc::new(BooleanArray::from(bits))
        }
        DType::U8 => of::<UInt8Type>(values, count),
        DType::I8 => of::<Int8Type>(values, count),
        DType::U16 | DType::BF16 => of::<UInt16Type>(values, count),
        DType::I16 => of::<Int16Type>(values, count),
        DType::U32 => of::<UInt32Type>(values, count),
        DType::I32 => of::<Int32Type>(values, count),
        DType::U64 => of::<UInt64Type>(values, count),
        DType::I64 => of::<Int64Type>(values, count),
        DType::F16 => of::<Float16Type>(values, count),
        DType::F32 => of::<Float32Type>(values, count),
        DType::F64 => of::<Float64Type>(values, count),
    };
    if form.shape().is_empty() {
        return items;
    }
    let item = Arc::new(Field::new("item", items.data_type().clone(), false));
    let each = i32::try_from(form.elements()).unwrap_or(i32::MAX);
    Arc::new(FixedSizeListArray::new(item, each, items, None))
}
