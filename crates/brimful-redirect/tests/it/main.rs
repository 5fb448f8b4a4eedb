//! Runs programs under the library.
