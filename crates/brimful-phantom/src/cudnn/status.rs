//! The statuses of cuDNN 9 that are answered here.

use std::ffi::c_int;

/// `CUDNN_STATUS_BAD_PARAM`.
pub(crate) const BAD_PARAM: c_int = 2000;
/// `CUDNN_STATUS_NOT_SUPPORTED`.
pub(crate) const NOT_SUPPORTED: c_int = 3000;
