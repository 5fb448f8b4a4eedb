//! Signs of trouble, one file each.
