//! Tokens to blocks. A block's record is its tokens, then one bit per token: whether a document begins there.

use crate::error::PrepareError;
use crate::records::key_of;
use crate::run_file::RunWriter;

/// The form of a block's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockForm {
    /// In tokens.
    pub(crate) block: usize,
    pub(crate) token_bytes: usize,
}

impl BlockForm {
    pub(crate) fn tokens_bytes(self) -> usize {
        self.block * self.token_bytes
    }

    fn mask_bytes(self) -> usize {
        self.block.div_ceil(8)
    }

    pub(crate) fn record_bytes(self) -> usize {
        self.tokens_bytes() + self.mask_bytes()
    }

    /// Where documents begin in a record, in tokens. The first token always counts as one: what was before it is in
    /// another block.
    pub(crate) fn starts(self, record: &[u8]) -> impl Iterator<Item = usize> + '_ {
        let mask = record.get(self.tokens_bytes()..).unwrap_or_default();
        let bit = |at: &usize| {
            mask.get(at / 8)
                .is_some_and(|byte| byte >> (at % 8) & 1 == 1)
        };
        std::iter::once(0).chain((1..self.block).filter(bit))
    }
}

/// Cuts tokens into blocks, which become records of a run.
#[derive(Clone, Debug)]
pub(crate) struct BlockBuilder {
    form: BlockForm,
    seed: u64,
    split: u64,
    /// The block that is not full yet, and where documents begin in it.
    tokens: Vec<u8>,
    mask: Vec<u8>,
    next: u64,
}

/// How far a builder was.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    builder: BlockBuilder,
    waiting: usize,
    segments: usize,
}

impl BlockBuilder {
    pub(crate) fn new(form: BlockForm, seed: u64, split: u64) -> BlockBuilder {
        BlockBuilder {
            form,
            seed,
            split,
            tokens: Vec::with_capacity(form.tokens_bytes()),
            mask: vec![0; form.mask_bytes()],
            next: 0,
        }
    }

    /// Bytes that it holds, with a copy of it for a mark.
    pub(crate) fn max_bytes(form: BlockForm) -> u64 {
        2 * form.record_bytes() as u64
    }

    pub(crate) fn begin_document(&mut self) {
        let at = self.tokens.len() / self.form.token_bytes;
        self.mask[at / 8] |= 1 << (at % 8);
    }

    pub(crate) fn push(
        &mut self,
        mut tokens: &[u8],
        run: &mut RunWriter,
    ) -> Result<(), PrepareError> {
        while !tokens.is_empty() {
            let room = self.form.tokens_bytes() - self.tokens.len();
            let (now, later) = tokens.split_at(room.min(tokens.len()));
            self.tokens.extend_from_slice(now);
            tokens = later;
            if self.tokens.len() == self.form.tokens_bytes() {
                self.complete(run)?;
            }
        }
        Ok(())
    }

    fn complete(&mut self, run: &mut RunWriter) -> Result<(), PrepareError> {
        let key = key_of(self.seed, self.split, self.next);
        run.add(key, |record| {
            let (tokens, mask) = record.split_at_mut(self.tokens.len());
            tokens.copy_from_slice(&self.tokens);
            mask.copy_from_slice(&self.mask);
            Ok::<(), PrepareError>(())
        })?;
        self.next += 1;
        self.tokens.clear();
        self.mask.fill(0);
        Ok(())
    }

    pub(crate) fn mark(&self, run: &RunWriter) -> Mark {
        Mark {
            builder: self.clone(),
            waiting: run.waiting(),
            segments: run.written_segments(),
        }
    }

    /// Goes back to a mark; false where a part of what came since is in the file.
    pub(crate) fn go_back(&mut self, mark: Mark, run: &mut RunWriter) -> bool {
        if run.written_segments() != mark.segments {
            return false;
        }
        run.keep_first(mark.waiting);
        *self = mark.builder;
        true
    }

    /// The tokens that fill no block, and where documents begin among them.
    pub(crate) fn into_tail(self) -> (Vec<u8>, Vec<u32>) {
        let count = self.tokens.len() / self.form.token_bytes;
        let is_start = |at: &usize| self.mask[at / 8] >> (at % 8) & 1 == 1;
        let starts = (0..count).filter(is_start);
        let starts = starts.map(|at| u32::try_from(at).unwrap_or(u32::MAX));
        let starts = starts.collect();
        (self.tokens, starts)
    }
}
