//! Text to tokens.

mod bounded;
#[cfg(test)]
mod tests;
mod tokenizer;
mod words;

pub use self::tokenizer::{NotEncoded, Tokenizer};
pub use self::words::Words;
