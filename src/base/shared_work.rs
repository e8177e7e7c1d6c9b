//! Work that several threads share.

use std::{
    sync::{Mutex, PoisonError},
    thread,
};

/// Does the work of each item on a thread for each worker; each thread takes the next item when it has done one. Returns
/// the results in the order of the items. After an error, no thread takes a further item.
pub(crate) fn share_work<W: Sync, I: Send, T: Send, E: Send>(
    workers: &[W],
    items: Vec<I>,
    work: impl Fn(&W, I) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let queue = Mutex::new(items.into_iter().enumerate());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for worker in workers {
            scope.spawn(|| {
                while let Some((place, item)) = next() {
                    let result = work(worker, item);
                    while result.is_err() && next().is_some() {}
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((place, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_order_of_the_items_and_an_error_ends_the_work() {
        let squares = share_work(&[(), ()], (0..100).collect(), |_, n: u32| Ok::<_, ()>(n * n));
        assert_eq!(squares, Ok((0..100).map(|n| n * n).collect()));
        let begun = Mutex::new(0);
        let failed = share_work(&[()], (0..100).collect(), |_, n: u32| {
            *begun.lock().expect("no panic") += 1;
            if n == 3 { Err(n) } else { Ok(n) }
        });
        assert_eq!((failed, begun.into_inner().expect("no panic")), (Err(3), 4));
    }
}
