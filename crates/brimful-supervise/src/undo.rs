//! A guard that undoes a step of the start.

use std::ops::{Deref, DerefMut};

/// A value that is undone when it is dropped, unless it is kept.
///
/// Whatever ends a start before the training begins (an error, a panic), what was created for it is removed.
#[derive(Debug)]
pub(crate) struct UndoOnDrop<T> {
    value: Option<T>,
    undo: fn(T),
}

impl<T> UndoOnDrop<T> {
    pub(crate) fn new(value: T, undo: fn(T)) -> UndoOnDrop<T> {
        UndoOnDrop {
            value: Some(value),
            undo,
        }
    }

    /// The value, which is no longer undone.
    pub(crate) fn keep(mut self) -> T {
        self.value.take().expect("only keep and drop take it")
    }
}

impl<T> Deref for UndoOnDrop<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("only keep and drop take it")
    }
}

impl<T> DerefMut for UndoOnDrop<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("only keep and drop take it")
    }
}

impl<T> Drop for UndoOnDrop<T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            (self.undo)(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn remove(directory: PathBuf) {
        std::fs::remove_dir(directory).unwrap();
    }

    #[test]
    fn a_value_is_undone_once_unless_it_is_kept() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("created");

        std::fs::create_dir(&path).unwrap();
        drop(UndoOnDrop::new(path.clone(), remove));
        assert!(!path.exists());

        std::fs::create_dir(&path).unwrap();
        let kept = UndoOnDrop::new(path.clone(), remove).keep();
        assert!(kept.exists());

        let unwound = std::panic::catch_unwind(|| {
            let _guard = UndoOnDrop::new(kept, remove);
            panic!("the start fails");
        });
        assert!(unwound.is_err());
        assert!(!path.exists());
    }
}
