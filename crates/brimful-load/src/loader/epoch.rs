//! The threads of one epoch.

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::loader::batch::{Batch, Work};
use crate::loader::scratch_pool::OpScratchPool;
use crate::loader::statistics::{add, add_time, change};
use crate::loader::{Budget, OnError, Shared};
use crate::ops::SampleKey;
use crate::order::Order;
use crate::pipeline::{OpScratch, Read, ReadScratch, SampleCause, SampleError};
use brimful_mapping::{Guard, handler};

/// Slots are claimed in parts that write about so many bytes, so that taking turns costs nothing.
const PART_BYTES: u64 = 64 << 10;

/// What comes next.
#[derive(Debug)]
pub enum Next {
    Batch(Batch),
    /// Nothing was ready in time; ask again.
    NotYet,
    End,
}

/// The batches of one epoch, in order. Dropping it ends its threads.
#[derive(Debug)]
pub struct Epoch {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    order: Order,
    epoch: u64,
    /// Slots that a thread claims at once.
    part: u64,
    /// None where each thread has its own.
    op_scratches: Option<OpScratchPool>,
    queue: Mutex<Queue>,
    /// Somebody waits for a batch to be done.
    done: Condvar,
    /// Threads wait for room.
    room: Condvar,
}

#[derive(Debug)]
struct Queue {
    /// Where the next step begins.
    position: u64,
    /// In the making or ready, in order.
    batches: VecDeque<Arc<Work>>,
    /// The last of them, and the first slot of it that nobody has claimed.
    filling: Option<(Arc<Work>, u64)>,
    /// No further step is begun.
    is_over: bool,
}

impl Epoch {
    pub(super) fn start(shared: Arc<Shared>, epoch: u64, position: u64) -> Epoch {
        shared.bound_pool();
        handler::install();
        let sample: u64 = shared.forms.iter().map(|form| form.bytes() as u64).sum();
        let Budget {
            threads: n_threads,
            op_scratches,
            ..
        } = shared.budget;
        let even = shared.settings.batch_size.div_ceil(n_threads as u64);
        let inner = Arc::new(Inner {
            order: shared.order(epoch),
            epoch,
            part: (PART_BYTES / sample.max(1)).clamp(1, even),
            op_scratches: (op_scratches < n_threads).then(|| OpScratchPool::new(op_scratches)),
            queue: Mutex::new(Queue {
                position,
                batches: VecDeque::new(),
                filling: None,
                is_over: false,
            }),
            done: Condvar::new(),
            room: Condvar::new(),
            shared,
        });
        let threads = (0..n_threads)
            .filter_map(|_| {
                let inner = Arc::clone(&inner);
                std::thread::Builder::new()
                    .name("brimful-load".to_owned())
                    .spawn(move || {
                        handler::unblock();
                        inner.work();
                    })
                    .ok()
            })
            .collect();
        Epoch { inner, threads }
    }

    /// The next batch, or nothing if it is not there after `timeout`.
    ///
    /// An error is that of the first sample that failed, in the order of the epoch; after it the epoch is over.
    pub fn next(&mut self, timeout: Duration) -> Result<Next, SampleError> {
        let inner = &*self.inner;
        if self.threads.is_empty() {
            // The system gives no threads: the work is done here.
            inner.work_for_one();
        }
        let began = Instant::now();
        let mut queue = inner.lock();
        loop {
            match queue.batches.front() {
                Some(first) if first.is_done() => break,
                None if queue.is_over => return Ok(Next::End),
                _ => {}
            }
            let left = timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                add_time(&inner.shared.counters.waited_ns, began.elapsed());
                return Ok(Next::NotYet);
            }
            queue = inner
                .done
                .wait_timeout(queue, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        let work = queue.batches.pop_front().expect("it is done");
        // Threads say that a part is done and let go of it under one lock.
        let work = Arc::into_inner(work).expect("nobody else has it");
        // Under the lock too: the next batch begins when it is known that this one is handed out.
        let finished = work.finished(&inner.shared.forms);
        drop(queue);
        inner.room.notify_all();
        add_time(&inner.shared.counters.waited_ns, began.elapsed());
        match finished {
            Ok(batch) => {
                add(&inner.shared.counters.batches, 1);
                add(&inner.shared.counters.samples, batch.samples);
                Ok(Next::Batch(batch))
            }
            Err(error) => {
                self.stop();
                Err(error)
            }
        }
    }

    fn stop(&mut self) {
        {
            let mut queue = self.inner.lock();
            queue.is_over = true;
            queue.filling = None;
        }
        self.inner.room.notify_all();
        for thread in self.threads.drain(..) {
            // A thread's panic was caught and told where it happened.
            let _ = thread.join();
        }
        self.inner.lock().batches.clear();
        if let Some(op_scratches) = &self.inner.op_scratches {
            op_scratches.clear(&self.inner.shared.counters);
        }
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What a thread works with.
#[derive(Debug, Default)]
struct ThreadState {
    read_scratch: ReadScratch,
    /// Its own, where there are as many as threads.
    op_scratch: OpScratch,
    /// For one of those that are shared.
    waited: Duration,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut place = ThreadState::default();
        let mut held = 0;
        while let Some((work, slots)) = self.claim() {
            self.fill(work, slots, &mut place);
            let now = (place.read_scratch.held_bytes() + place.op_scratch.held_bytes()) as u64;
            change(&self.shared.counters.read_scratch, held, now);
            held = now;
        }
        change(&self.shared.counters.read_scratch, held, 0);
    }

    /// Makes one batch in the thread that asks for it.
    fn work_for_one(&self) {
        let mut place = ThreadState::default();
        loop {
            let is_waiting = self
                .lock()
                .batches
                .front()
                .is_some_and(|work| work.is_done());
            if is_waiting {
                return;
            }
            let Some((work, slots)) = self.claim() else {
                return;
            };
            self.fill(work, slots, &mut place);
        }
    }

    /// The next slots to fill; waits for room, and gives nothing when the epoch is over.
    fn claim(&self) -> Option<(Arc<Work>, Range<u64>)> {
        let mut queue = self.lock();
        loop {
            if let Some((work, first)) = queue.filling.take() {
                let end = (first + self.part).min(work.samples());
                if end < work.samples() {
                    queue.filling = Some((Arc::clone(&work), end));
                }
                return Some((work, first..end));
            }
            if queue.is_over {
                return None;
            }
            if queue.batches.len() as u64 >= self.shared.batches_ahead() {
                let began = Instant::now();
                queue = self
                    .room
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
                add_time(&self.shared.counters.idle_ns, began.elapsed());
                continue;
            }
            let step = self.shared.split().step(queue.position, self.order.len());
            let Some(step) = step else {
                queue.is_over = true;
                self.done.notify_all();
                self.room.notify_all();
                return None;
            };
            queue.position = step.next;
            if step.ours.is_empty() {
                continue;
            }
            let work = Arc::new(Work::new(
                &self.shared.pool,
                &self.shared.forms,
                step.ours,
                step.next,
            ));
            queue.batches.push_back(Arc::clone(&work));
            queue.filling = Some((work, 0));
            self.room.notify_all();
        }
    }

    fn fill(&self, work: Arc<Work>, slots: Range<u64>, place: &mut ThreadState) {
        let began = Instant::now();
        let count = slots.end - slots.start;
        for slot in slots {
            let index = self.order.at(work.positions.start + slot);
            match self.sample(&work, slot, index, place) {
                Ok(()) => {}
                Err(error) if self.shared.settings.on_error == OnError::Skip => {
                    self.shared.counters.skip(error);
                    work.skip(slot);
                }
                Err(error) => work.fail(slot, error),
            }
        }
        let counters = &self.shared.counters;
        add_time(&counters.worked_ns, began.elapsed());
        add_time(&counters.scratch_wait_ns, std::mem::take(&mut place.waited));
        place
            .read_scratch
            .take_stages(|stage, ns| add(&counters.stages_ns[stage], ns));
        // Under the lock: whoever sees that it is done has it alone.
        let queue = self.lock();
        if work.done(count) {
            self.done.notify_all();
        }
        drop(work);
        drop(queue);
    }

    fn sample(
        &self,
        work: &Work,
        slot: u64,
        index: u64,
        place: &mut ThreadState,
    ) -> Result<(), SampleError> {
        let key = SampleKey {
            seed: self.shared.settings.seed,
            epoch: self.epoch,
            index,
        };
        // SAFETY: `claim` has given this slot to this thread and to no other, and it is asked for once.
        #[expect(unsafe_code, reason = "several threads fill one batch")]
        let mut memory = unsafe { work.slots(slot) };
        let pipeline = &self.shared.pipeline;
        // A mistake of ours in one sample must not leave the training waiting forever.
        catch_unwind(AssertUnwindSafe(|| self.made(key, &mut memory, place))).unwrap_or_else(
            |panic| {
                let text = panic
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or_else(|| panic.downcast_ref::<&str>().copied())
                    .unwrap_or("a panic");
                *place = ThreadState::default();
                Err(SampleError {
                    place: pipeline.source().place(index),
                    index,
                    field: None,
                    cause: Box::new(SampleCause::Panic(text.to_owned())),
                })
            },
        )
    }

    fn made(
        &self,
        key: SampleKey,
        slots: &mut [&mut [u8]],
        place: &mut ThreadState,
    ) -> Result<(), SampleError> {
        let pipeline = &self.shared.pipeline;
        let ThreadState {
            read_scratch,
            op_scratch,
            waited,
        } = place;
        // Values refer to mapped files, which ops read.
        let guard = Guard::enter();
        let read = pipeline.read(key, slots, read_scratch);
        let made = read.and_then(|read| match (read, &self.op_scratches) {
            (Read::IntoSlots, _) => Ok(()),
            (Read::IntoScratch, None) => pipeline.make(key, slots, read_scratch, op_scratch),
            (Read::IntoScratch, Some(op_scratches)) => {
                let (mut taken, further) = op_scratches.take(&self.shared.counters);
                *waited += further;
                pipeline.make(key, slots, read_scratch, taken.op_scratch())
            }
        });
        pipeline.checked(key, made, read_scratch, &guard)
    }
}
