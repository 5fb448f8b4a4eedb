//! This library's own memory.
//!
//! Allocators read files while they set themselves up, some with their lock held: jemalloc asks for the link
//! `/etc/malloc.conf`. Such a call arrives here, and to allocate from the same allocator would wait for good.

use std::sync::Once;

use dlmalloc::GlobalDlmalloc;

#[global_allocator]
static ALLOCATOR: GlobalDlmalloc = GlobalDlmalloc;

/// Runs when the library is loaded: from then on a child that is forked while another thread allocates finds the
/// allocator unlocked.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    static ONCE: Once = Once::new();
    // SAFETY: registers handlers for forks, once.
    ONCE.call_once(|| unsafe { dlmalloc::enable_alloc_after_fork() });
}
