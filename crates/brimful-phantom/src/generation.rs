//! Which CUDA the program was built for.
//!
//! A few names mean different things in CUDA 12 and 13, and one library answers for both.
//! The loaded objects tell: PyTorch's libraries need `libcudart.so.12` or `libcudart.so.13`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

/// 12 or 13; 13 as long as nothing that needs a CUDA runtime is loaded.
pub(crate) fn cuda_major() -> c_int {
    static FOUND: AtomicI32 = AtomicI32::new(0);
    let known = FOUND.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let mut found: c_int = 0;
    // SAFETY: `visit` matches the callback type and treats the last argument as the `c_int` given here.
    unsafe { dl_iterate_phdr(visit, (&raw mut found).cast()) };
    if found == 0 {
        return 13;
    }
    FOUND.store(found, Ordering::Relaxed);
    found
}

/// The runtime's version in NVIDIA's form; the newest minor of each generation that PyTorch wheels are built
/// with.
pub(crate) fn runtime_version() -> c_int {
    if cuda_major() >= 13 { 13_000 } else { 12_080 }
}

/// `struct dl_phdr_info` of `<link.h>`, as far as it is read.
#[repr(C)]
struct ObjectInfo {
    base: usize,
    name: *const c_char,
    headers: *const ProgramHeader,
    count: u16,
}

/// `Elf64_Phdr` of `<elf.h>`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    file_size: u64,
    memory_size: u64,
    align: u64,
}

/// `Elf64_Dyn` of `<elf.h>`.
#[repr(C)]
#[derive(Clone, Copy)]
struct DynamicEntry {
    tag: i64,
    value: u64,
}

const PT_DYNAMIC: u32 = 2;
const DT_NULL: i64 = 0;
const DT_NEEDED: i64 = 1;
const DT_STRTAB: i64 = 5;

unsafe extern "C" {
    fn dl_iterate_phdr(
        visit: extern "C" fn(*const ObjectInfo, usize, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
}

extern "C" fn visit(object: *const ObjectInfo, _size: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid object whose program headers and dynamic section stay mapped
    // meanwhile.
    let major = unsafe { major_needed_by(&*object) };
    if let Some(major) = major {
        crate::abi::put(found.cast::<c_int>(), major);
        return 1;
    }
    0
}

/// # Safety
/// `object` must describe a loaded ELF object.
unsafe fn major_needed_by(object: &ObjectInfo) -> Option<c_int> {
    for place in 0..usize::from(object.count) {
        // SAFETY: the loader gives `count` headers.
        let header = unsafe { *object.headers.add(place) };
        if header.kind != PT_DYNAMIC {
            continue;
        }
        let first = object
            .base
            .wrapping_add(usize::try_from(header.address).ok()?)
            as *const DynamicEntry;
        // SAFETY: a dynamic section ends with DT_NULL, and glibc has made DT_STRTAB an address.
        return unsafe { major_in_dynamic_section(first, object.base) };
    }
    None
}

/// # Safety
/// `first` must be the dynamic section of an object loaded at `base`.
unsafe fn major_in_dynamic_section(first: *const DynamicEntry, base: usize) -> Option<c_int> {
    let mut strings = 0_usize;
    let mut needed = Vec::new();
    let mut at = first;
    loop {
        // SAFETY: not past DT_NULL.
        let entry = unsafe { *at };
        match entry.tag {
            DT_NULL => break,
            DT_NEEDED => needed.push(usize::try_from(entry.value).ok()?),
            DT_STRTAB => strings = usize::try_from(entry.value).ok()?,
            _ => {}
        }
        at = at.wrapping_add(1);
    }
    // The vdso's table is not relocated; an address below the object's base is such an offset.
    if needed.is_empty() || strings < base || strings == 0 {
        return None;
    }
    needed.into_iter().find_map(|offset| {
        // SAFETY: an offset of a DT_NEEDED entry is the start of a string in the string table.
        let name = unsafe { CStr::from_ptr((strings + offset) as *const c_char) };
        match name.to_bytes() {
            b"libcudart.so.12" => Some(12),
            b"libcudart.so.13" => Some(13),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn without_a_cuda_program_it_is_the_newest() {
        assert_eq!(super::cuda_major(), 13);
    }
}
