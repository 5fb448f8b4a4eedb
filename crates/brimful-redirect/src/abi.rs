//! What every export shares: no panic leaves the library, `errno` is right, C strings are read with care.

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::sys::{self, Outcome};

/// Defines C functions that give `$failure` and set `errno` if their body gives `Err`.
macro_rules! exports {
    ($( $(#[$meta:meta])* fn $name:ident ( $($arg:ident : $kind:ty),* $(,)? ) -> $result:ty, $failure:expr; $body:block )*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($($arg: $kind),*) -> $result {
            $crate::abi::guard($failure, move || $body)
        }
    )*};
}
pub(crate) use exports;

/// Runs the body of an export. On success `errno` is what it was before.
pub(crate) fn guard<T>(failure: T, body: impl FnOnce() -> Outcome<T>) -> T {
    let before = sys::errno();
    match catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(libc::EIO)) {
        Ok(value) => {
            sys::set_errno(before);
            value
        }
        Err(error) => {
            sys::set_errno(error);
            failure
        }
    }
}

/// A C string of the caller, who vouches for it; null is `EFAULT`.
pub(crate) fn text<'a>(pointer: *const c_char) -> Outcome<&'a [u8]> {
    if pointer.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: not null, and a C string by the contract of every function that takes one.
    Ok(unsafe { std::ffi::CStr::from_ptr(pointer) }.to_bytes())
}

/// Writes through a pointer of the caller; null is `EFAULT`.
pub(crate) fn put<T>(out: *mut T, value: T) -> Outcome<()> {
    if out.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: not null, and writable as `T` by the contract of the C function.
    unsafe { out.write(value) };
    Ok(())
}

/// The function that would have been called without this library.
pub(crate) struct Next {
    name: &'static std::ffi::CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static std::ffi::CStr) -> Self {
        Self {
            name,
            found: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Its address; `ENOSYS` if this libc has none.
    pub(crate) fn address(&self) -> Outcome<*mut c_void> {
        let mut address = self.found.load(Ordering::Relaxed);
        if address.is_null() {
            // SAFETY: a lookup by name among the libraries behind this one.
            address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            self.found.store(address, Ordering::Relaxed);
        }
        if address.is_null() {
            return Err(libc::ENOSYS);
        }
        Ok(address)
    }
}

/// Calls the next function of a name: `next!(c"opendir", fn(*const c_char) -> *mut DIR)(path)`.
macro_rules! next {
    ($name:literal, fn($($kind:ty),* $(,)?) -> $result:ty) => {{
        static NEXT: $crate::abi::Next = $crate::abi::Next::new($name);
        let address = NEXT.address()?;
        // SAFETY: the function of that name in libc has this signature, and our caller keeps its contract.
        unsafe {
            ::std::mem::transmute::<*mut ::std::ffi::c_void, extern "C" fn($($kind),*) -> $result>(address)
        }
    }};
}
pub(crate) use next;

/// The result of a libc function that gives -1 and sets `errno`.
pub(crate) fn checked(result: c_int) -> Outcome<c_int> {
    if result == -1 {
        Err(sys::errno())
    } else {
        Ok(result)
    }
}

/// The result of a libc function that gives null and sets `errno`.
pub(crate) fn checked_pointer<T>(result: *mut T) -> Outcome<*mut T> {
    if result.is_null() {
        Err(sys::errno())
    } else {
        Ok(result)
    }
}
