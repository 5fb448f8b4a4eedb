//! A small file that somebody else decodes.

use std::path::Path;

use bytes::Bytes;
use parquet::file::metadata::ParquetMetaData;

use crate::error::SourceError;
use crate::reading::Reader;
use crate::sources::parquet::footer::{checked_groups, described};
use crate::sources::parquet::pages::Pages;

/// What a Parquet file in memory says of itself, after everything in it was checked that a decoder reserves memory for.
///
/// No column has pages of more than `max_bytes`, compressed or not. A decoder may still fail, or panic, on what the pages
/// contain: call it through [`catch_panics`](crate::catch_panics()).
pub fn check_parquet(
    path: &Path,
    bytes: Bytes,
    max_bytes: u64,
) -> Result<ParquetMetaData, SourceError> {
    let reader = Reader::of_memory(path, bytes);
    let checked = || {
        let described = described(&reader)?;
        for group in checked_groups(&described, reader.len())? {
            for chunk in &group.chunks {
                Pages::check(&reader, chunk, max_bytes)?;
            }
        }
        Ok(described)
    };
    checked().map_err(|problem: crate::problem::Problem| problem.of(path))
}
