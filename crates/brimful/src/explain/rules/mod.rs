//! Causes of death, one file each.
