//! Text to tokens.

mod bounded;
mod byte_level;
#[cfg(test)]
mod tests;
mod tokenizer;
mod word_cache;

pub use self::tokenizer::{NotEncoded, Tokenizer};
pub use self::word_cache::WordCache;
