//! Cycles in a small directed graph. An arrow is an edge.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A strongly connected component: nodes that all reach each other.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Knot<N> {
    /// Number of nodes.
    pub(super) len: usize,
    /// A shortest cycle in the component; its first node is its last, too.
    pub(super) circle: Vec<N>,
}

/// Returns the strongly connected components of two and more nodes.
pub(super) fn knots<N: Ord + Clone>(arrows: &[(N, N)]) -> Vec<Knot<N>> {
    let mut next = BTreeMap::<&N, Vec<&N>>::new();
    for (from, to) in arrows {
        next.entry(from).or_default().push(to);
    }
    let mut reported = BTreeSet::new();
    let mut knots = Vec::new();
    for start in next.keys() {
        if reported.contains(start) {
            continue;
        }
        let members: Vec<&N> = reachable(&next, start)
            .into_iter()
            .filter(|node| reachable(&next, node).contains(start))
            .collect();
        let shortest = members.iter().filter_map(|node| circle(&next, node)).min_by_key(Vec::len);
        knots.extend(shortest.map(|circle| Knot {
            len: members.len(),
            circle: circle.into_iter().cloned().collect(),
        }));
        reported.extend(members);
    }
    knots
}

/// Returns the nodes to which a path of one arrow or more leads from `start`.
fn reachable<'a, N: Ord>(next: &BTreeMap<&'a N, Vec<&'a N>>, start: &N) -> BTreeSet<&'a N> {
    let mut found = BTreeSet::new();
    let mut pending: Vec<&N> = next.get(start).into_iter().flatten().copied().collect();
    while let Some(node) = pending.pop() {
        if found.insert(node) {
            pending.extend(next.get(node).into_iter().flatten());
        }
    }
    found
}

/// Returns a shortest path from `start` back to it.
fn circle<'a, N: Ord>(next: &BTreeMap<&'a N, Vec<&'a N>>, start: &'a N) -> Option<Vec<&'a N>> {
    let mut came_from = BTreeMap::<&N, &N>::new();
    let mut pending = VecDeque::from([start]);
    while let Some(node) = pending.pop_front() {
        for to in next.get(node).into_iter().flatten() {
            if *to == start {
                let mut path = vec![start, node];
                while path[path.len() - 1] != start {
                    path.push(came_from[path[path.len() - 1]]);
                }
                path.reverse();
                return Some(path);
            }
            if !came_from.contains_key(to) {
                came_from.insert(to, node);
                pending.push_back(to);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_without_cycles_has_no_component() {
        assert!(knots(&[(1, 2), (2, 3), (1, 3)]).is_empty());
    }

    #[test]
    fn the_cycle_of_a_component_is_a_shortest_one() {
        let arrows = [(1, 2), (2, 3), (3, 1), (3, 2), (3, 4), (4, 5), (5, 4)];
        let expected =
            [Knot { len: 3, circle: vec![2, 3, 2] }, Knot { len: 2, circle: vec![4, 5, 4] }];
        assert_eq!(knots(&arrows), expected);
    }
}
