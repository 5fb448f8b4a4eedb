//! The chunk indexes of the format: a tree of version 1 before libhdf5 1.10, five more kinds since.

use hdf5_reader::btree_v1::{BTreeV1Key, collect_btree_v1_leaves_storage};
use hdf5_reader::chunk_index::{ChunkEntry, collect_v2_chunk_entries_storage, single_chunk_entry};
use hdf5_reader::error::Error;
use hdf5_reader::extensible_array::collect_extensible_array_chunk_entries_storage;
use hdf5_reader::fixed_array::collect_fixed_array_chunk_entries_storage;
use hdf5_reader::messages::layout::{ChunkIndexing, DataLayout};

use super::index_checksums::IndexLocation;
use super::metadata::{Described, Metadata};

/// What the index of a dataset at that address has, whichever kind it is; nothing of it is checked.
///
/// `widest` is what the dataset may grow to: a fixed array is numbered over that, not over what there is.
pub(super) fn entries(
    metadata: &Metadata,
    described: &Described,
    address: u64,
    sides: &[u32],
    widest: &[u64],
) -> Result<Vec<ChunkEntry>, Error> {
    let DataLayout::Chunked { chunk_indexing, .. } = &described.layout else {
        return Ok(Vec::new());
    };
    let file = metadata.file();
    let (offset_size, length_size) = (file.superblock().offset_size, file.superblock().length_size);
    let rank = described.dims.len();
    let n_sides = u32::try_from(rank).unwrap_or(u32::MAX);
    let location = IndexLocation {
        storage: file.storage(),
        address,
        offset_size,
        length_size,
    };
    match chunk_indexing {
        None => {
            let leaves = collect_btree_v1_leaves_storage(
                file.storage(),
                address,
                offset_size,
                length_size,
                Some(n_sides),
                sides,
                None,
            )?;
            Ok(leaves
                .into_iter()
                .filter_map(|(key, address)| match key {
                    BTreeV1Key::RawData {
                        chunk_size,
                        filter_mask,
                        mut offsets,
                    } => {
                        offsets.truncate(rank);
                        Some(ChunkEntry {
                            address,
                            size: u64::from(chunk_size),
                            filter_mask,
                            offsets,
                        })
                    }
                    BTreeV1Key::Group { .. } => None,
                })
                .collect())
        }
        Some(ChunkIndexing::SingleChunk {
            filtered_size,
            filters,
        }) => Ok(vec![single_chunk_entry(
            address,
            *filtered_size,
            *filters,
            rank,
        )]),
        Some(ChunkIndexing::Implicit) => Ok(Vec::new()),
        Some(ChunkIndexing::FixedArray { .. }) => {
            location.check_fixed_array()?;
            collect_fixed_array_chunk_entries_storage(
                file.storage(),
                address,
                offset_size,
                length_size,
                widest,
                sides,
                None,
            )
        }
        Some(ChunkIndexing::ExtensibleArray { .. }) => {
            location.check_extensible_array()?;
            collect_extensible_array_chunk_entries_storage(
                file.storage(),
                address,
                offset_size,
                length_size,
                &described.dims,
                described.max_dims.as_deref(),
                sides,
                None,
            )
        }
        Some(ChunkIndexing::BTreeV2) => collect_v2_chunk_entries_storage(
            file.storage(),
            address,
            offset_size,
            length_size,
            n_sides,
            sides,
            None,
        ),
    }
}
