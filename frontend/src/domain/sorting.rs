//! Sorting with code that all types of items share.

use std::cmp::Ordering;

/// Sorts items like [`slice::sort_by`], which keeps the order of equal ones.
///
/// The code of a sort of the standard library is compiled for each type of item, 3 kB each time. Here, only positions are
/// sorted.
pub fn sort_by<T>(items: &mut Vec<T>, compare: impl Fn(&T, &T) -> Ordering) {
    let order = positions(items.len(), &|one, other| compare(&items[one], &items[other]));
    let mut unsorted: Vec<Option<T>> = items.drain(..).map(Some).collect();
    items.extend(order.into_iter().filter_map(|at| unsorted[at].take()));
}

/// Sorts items by a key like [`sort_by`].
pub fn sort_by_key<T, K: Ord>(items: &mut Vec<T>, key: impl Fn(&T) -> K) {
    sort_by(items, |one, other| key(one).cmp(&key(other)));
}

/// Returns the positions of `count` items in order.
pub fn positions(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|one, other| compare(*one, *other));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_items_keep_their_order() {
        let mut items = vec![(2, "a"), (1, "b"), (2, "c"), (1, "d"), (0, "e")];
        sort_by_key(&mut items, |(key, _)| *key);
        assert_eq!(items, [(0, "e"), (1, "b"), (1, "d"), (2, "a"), (2, "c")]);
        sort_by(&mut items, |one, other| other.0.cmp(&one.0));
        assert_eq!(items, [(2, "a"), (2, "c"), (1, "b"), (1, "d"), (0, "e")]);
    }
}
