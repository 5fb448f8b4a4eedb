//! Samples one by one, for whoever needs no batches.

use std::panic::{AssertUnwindSafe, catch_unwind};

use brimful_mapping::Guard;

use crate::ops::SampleKey;
use crate::pipeline::{OpScratch, Pipeline, Read, ReadScratch, SampleCause, SampleError};

/// Makes samples of a pipeline in one thread, with memory that it keeps from sample to sample.
#[derive(Debug)]
pub struct SampleMaker {
    pipeline: Pipeline,
    read_scratch: ReadScratch,
    op_scratch: OpScratch,
}

impl SampleMaker {
    pub fn new(pipeline: Pipeline) -> SampleMaker {
        SampleMaker {
            pipeline,
            read_scratch: ReadScratch::default(),
            op_scratch: OpScratch::default(),
        }
    }

    /// Maximum number of bytes that it holds.
    pub fn max_bytes(&self) -> u64 {
        let pipeline = &self.pipeline;
        pipeline
            .bytes_to_read()
            .saturating_add(pipeline.bytes_to_make())
            .saturating_add(pipeline.source().kept_bytes())
    }

    /// Makes one sample in its slots, one for each field. They hold anything if it fails.
    pub fn make(&mut self, key: SampleKey, slots: &mut [&mut [u8]]) -> Result<(), SampleError> {
        let made = catch_unwind(AssertUnwindSafe(|| self.made(key, slots)));
        made.unwrap_or_else(|_| {
            self.read_scratch = ReadScratch::default();
            self.op_scratch = OpScratch::default();
            Err(SampleError {
                place: self.pipeline.source().place(key.index),
                index: key.index,
                field: None,
                cause: Box::new(SampleCause::Panic("a panic".to_owned())),
            })
        })
    }

    fn made(&mut self, key: SampleKey, slots: &mut [&mut [u8]]) -> Result<(), SampleError> {
        let SampleMaker {
            pipeline,
            read_scratch,
            op_scratch,
        } = self;
        // Values refer to mapped files, which ops read.
        let guard = Guard::enter();
        let made = match pipeline.read(key, slots, read_scratch) {
            Ok(Read::IntoSlots) => Ok(()),
            Ok(Read::IntoScratch) => pipeline.make(key, slots, read_scratch, op_scratch),
            Err(error) => Err(error),
        };
        pipeline.checked(key, made, read_scratch, &guard)
    }
}
