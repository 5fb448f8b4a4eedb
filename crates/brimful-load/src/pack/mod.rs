//! Documents to one file of tokens. (being written)
