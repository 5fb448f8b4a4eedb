//! Shards of tokens: the blocks one after another, and where documents begin beside them.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;

use brimful_load::sources::{DocumentsHeader, HEADER_BYTES, documents_path};

use crate::blocks::BlockForm;
use crate::digest::DigestWriter;
use crate::error::PrepareError;
use crate::manifest::ShardEntry;
use crate::run_file::WRITE_BUFFER;
use crate::shard_writer::ShardWriter;
use crate::work::{AttemptFile, WorkDir};

pub(crate) struct TokenShard {
    name: String,
    form: BlockForm,
    tokens: BufWriter<DigestWriter<File>>,
    tokens_attempt: AttemptFile,
    documents: BufWriter<File>,
    documents_attempt: AttemptFile,
    samples: u64,
    n_documents: u64,
}

impl TokenShard {
    pub(crate) fn create(
        work: &WorkDir,
        shard: u64,
        form: BlockForm,
    ) -> Result<TokenShard, PrepareError> {
        let name = format!("shard-{shard:05}.tokens");
        let path = work.out().join(&name);
        let (tokens_attempt, tokens) = AttemptFile::create(work, &path)?;
        let (documents_attempt, documents) = AttemptFile::create(work, &documents_path(&path))?;
        let mut documents = BufWriter::with_capacity(WRITE_BUFFER, documents);
        // The numbers of the header are known at the end.
        documents
            .write_all(&[0; HEADER_BYTES])
            .map_err(|cause| documents_attempt.unwritable(cause))?;
        Ok(TokenShard {
            name,
            form,
            tokens: BufWriter::with_capacity(WRITE_BUFFER, DigestWriter::new(tokens)),
            tokens_attempt,
            documents,
            documents_attempt,
            samples: 0,
            n_documents: 0,
        })
    }

    fn write_start(&mut self, token: u64) -> Result<(), PrepareError> {
        let written = self.documents.write_all(&token.to_le_bytes());
        written.map_err(|cause| self.documents_attempt.unwritable(cause))
    }
}

impl ShardWriter for TokenShard {
    fn write(&mut self, record: &[u8]) -> Result<(), PrepareError> {
        let tokens = record.get(..self.form.tokens_bytes()).unwrap_or_default();
        let written = self.tokens.write_all(tokens);
        written.map_err(|cause| self.tokens_attempt.unwritable(cause))?;
        let first = self.samples * self.form.block as u64;
        for start in self.form.starts(record) {
            self.write_start(first + start as u64)?;
            self.n_documents += 1;
        }
        self.samples += 1;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<ShardEntry, PrepareError> {
        let n_tokens = self.samples * self.form.block as u64;
        // Where the last document ends.
        self.write_start(n_tokens)?;
        let header = DocumentsHeader {
            token_bytes: u32::try_from(self.form.token_bytes).unwrap_or(u32::MAX),
            documents: self.n_documents,
            tokens: n_tokens,
        };
        let flushed = self
            .documents
            .flush()
            .and_then(|()| self.documents.get_ref().write_all_at(&header.to_bytes(), 0));
        flushed.map_err(|cause| self.documents_attempt.unwritable(cause))?;
        let flushed = self.tokens.flush();
        flushed.map_err(|cause| self.tokens_attempt.unwritable(cause))?;
        // The starts first: a file of tokens with its name has them.
        self.documents_attempt.commit(self.documents.get_ref())?;
        let tokens = self.tokens.get_mut();
        let entry = ShardEntry {
            file: self.name,
            samples: self.samples,
            bytes: tokens.bytes(),
            digest: tokens.digest(),
        };
        self.tokens_attempt.commit(tokens.inner())?;
        Ok(entry)
    }
}
