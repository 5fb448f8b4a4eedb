//! One field of a batch, handed to torch and NumPy without a copy.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use brimful_load::loader::{BatchField, Lent};
use brimful_load::{DType, TensorSpec};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Memory of a batch. `torch.from_dlpack` and `numpy.asarray` take it as it is.
#[pyclass(frozen, module = "brimful._native")]
#[derive(Debug)]
pub(crate) struct BatchArray {
    form: TensorSpec,
    memory: Arc<Lent>,
}

impl BatchArray {
    pub(crate) fn new(field: BatchField) -> BatchArray {
        BatchArray {
            form: field.form,
            memory: Arc::new(field.memory),
        }
    }
}

#[pymethods]
impl BatchArray {
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyTuple::new(py, self.form.shape())?.into_any())
    }

    /// As NumPy and torch call it.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.form.dtype().name()
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.form.bytes()
    }

    fn __len__(&self) -> usize {
        self.form.shape().first().copied().unwrap_or(0)
    }

    fn __repr__(&self) -> String {
        format!("BatchArray({})", self.form)
    }

    /// The processor.
    #[expect(clippy::unused_self, reason = "a method of Python's protocol")]
    fn __dlpack_device__(&self) -> (i32, i32) {
        (CPU, 0)
    }

    /// The memory itself; nothing is copied.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__(
        &self,
        py: Python<'_>,
        stream: Option<Py<PyAny>>,
        max_version: Option<Py<PyAny>>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        drop((stream, max_version));
        if dl_device.is_some_and(|device| device != (CPU, 0)) || copy == Some(true) {
            return Err(PyBufferError::new_err(
                "a batch can only be exported on the CPU and without a copy",
            ));
        }
        capsule(py, &self.form, &self.memory)
    }

    /// For NumPy.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let typed = type_text(self.form.dtype())
            .ok_or_else(|| pyo3::exceptions::PyAttributeError::new_err("NumPy has no bfloat16"))?;
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", typed)?;
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("data", (self.memory.bytes().as_ptr() as usize, false))?;
        Ok(interface.into_any())
    }
}

const CPU: i32 = 1;

fn type_text(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "|b1",
        DType::U8 => "|u1",
        DType::I8 => "|i1",
        DType::U16 => "<u2",
        DType::I16 => "<i2",
        DType::U32 => "<u4",
        DType::I32 => "<i4",
        DType::U64 => "<u8",
        DType::I64 => "<i8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::BF16 => return None,
    })
}

// The structures of DLPack 0.8, as its header lays them out.

#[repr(C)]
struct Device {
    kind: i32,
    id: i32,
}

#[repr(C)]
struct ElementType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    n_dimensions: i32,
    element: ElementType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct ManagedTensor {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// What a capsule points to: the structure, and what it points to.
#[repr(C)]
struct Exported {
    managed: ManagedTensor,
    shape: Vec<i64>,
    strides: Vec<i64>,
    /// Whoever has the tensor has this.
    memory: Arc<Lent>,
}

const NAME: &CStr = c"dltensor";

fn element(dtype: DType) -> ElementType {
    let code = match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => 0,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => 1,
        DType::F16 | DType::F32 | DType::F64 => 2,
        DType::BF16 => 4,
        DType::Bool => 6,
    };
    ElementType {
        code,
        bits: u8::try_from(dtype.size() * 8).expect("at most 64"),
        lanes: 1,
    }
}

#[expect(unsafe_code, reason = "DLPack is a C interface")]
fn capsule(py: Python<'_>, form: &TensorSpec, memory: &Arc<Lent>) -> PyResult<Py<PyAny>> {
    let side = |side: usize| i64::try_from(side).expect("its memory is there");
    let shape: Vec<i64> = form.shape().iter().copied().map(side).collect();
    let mut strides = vec![1; shape.len()];
    for at in (1..shape.len()).rev() {
        strides[at - 1] = strides[at] * shape[at].max(1);
    }
    let mut exported = Box::new(Exported {
        managed: ManagedTensor {
            tensor: Tensor {
                // Torch writes to its tensors; batches are nobody else's.
                data: memory.bytes().as_ptr().cast_mut().cast(),
                device: Device { kind: CPU, id: 0 },
                n_dimensions: i32::try_from(shape.len()).expect("few dimensions"),
                element: element(form.dtype()),
                shape: std::ptr::null_mut(),
                strides: std::ptr::null_mut(),
                byte_offset: 0,
            },
            context: std::ptr::null_mut(),
            deleter: Some(delete),
        },
        shape,
        strides,
        memory: Arc::clone(memory),
    });
    exported.managed.tensor.shape = exported.shape.as_mut_ptr();
    exported.managed.tensor.strides = exported.strides.as_mut_ptr();
    let pointer = Box::into_raw(exported);
    // SAFETY: the pointer is a fresh box, and from here on it is the capsule's; `end` and `delete` give it back once.
    unsafe {
        let capsule = pyo3::ffi::PyCapsule_New(pointer.cast(), NAME.as_ptr(), Some(end));
        if capsule.is_null() {
            drop(Box::from_raw(pointer));
        }
        Bound::from_owned_ptr_or_err(py, capsule).map(Bound::unbind)
    }
}

/// Called by whoever took the tensor, in any thread, with or without Python's lock.
///
/// # Safety
///
/// `managed` is the beginning of an `Exported` that nobody uses any more.
#[expect(unsafe_code, reason = "DLPack is a C interface")]
unsafe extern "C" fn delete(managed: *mut ManagedTensor) {
    if !managed.is_null() {
        // SAFETY: `managed` is the first member of an `Exported` with C's layout, made by `Box::into_raw` in `capsule`.
        drop(unsafe { Box::from_raw(managed.cast::<Exported>()) });
    }
}

/// The capsule is gone. Whoever took the tensor has renamed it first; otherwise nobody took it.
///
/// # Safety
///
/// Called by Python with the capsule of `capsule`.
#[expect(unsafe_code, reason = "DLPack is a C interface")]
unsafe extern "C" fn end(capsule: *mut pyo3::ffi::PyObject) {
    // SAFETY: Python holds its lock here and gives a capsule; the name says whether the pointer is still the capsule's.
    unsafe {
        if pyo3::ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            let pointer = pyo3::ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr());
            delete(pointer.cast());
        }
    }
}
