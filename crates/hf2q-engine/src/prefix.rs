//! A radix tree over token ids. Its unit is a page: each edge has the tokens of one page, and its node holds the
//! page of every group that stores their keys and values.
//!
//! Keys and values of a position depend on the tokens up to it alone, bit for bit; that is why a page can serve
//! every sequence that begins with the tokens on the way to it.

use std::collections::BTreeMap;
use std::ops::Bound;

use hf2q_plan::{Group, NO_PAGE, PAGE, Span};

use crate::pages::PagePool;
use crate::sequence::first_page;

const ROOT: usize = 0;

/// Children that are looked at on each side of where the wanted tokens would be in their order.
const NEIGHBOURS: usize = 8;

#[derive(Debug, Default)]
struct Node {
    parent: usize,
    /// `1 ..= PAGE` tokens; fewer than [`PAGE`] only where there are no children.
    tokens: Box<[u32]>,
    children: BTreeMap<Box<[u32]>, usize>,
    /// By group: its page, or [`NO_PAGE`]. Groups of which rows see everything always have one.
    pages: Vec<u32>,
    /// By group: when the page was last of use.
    used: Vec<u64>,
}

/// A prefix whose keys and values are all there that the next position needs.
#[derive(Debug)]
pub(crate) struct Hit {
    /// A node for each page of the prefix.
    nodes: Vec<usize>,
    /// Positions; of the last page perhaps not all that it holds.
    pub(crate) len: usize,
}

/// What is kept of sequences, present and past.
#[derive(Debug)]
pub(crate) struct PrefixTree {
    nodes: Vec<Node>,
    /// Places of `nodes` that can be taken.
    vacant: Vec<usize>,
    groups: Vec<Group>,
    clock: u64,
}

impl PrefixTree {
    pub(crate) fn new(groups: Vec<Group>) -> Self {
        Self { nodes: vec![Node::default()], vacant: Vec::new(), groups, clock: 0 }
    }

    /// The longest prefix of `tokens` of at most `limit` positions that can be continued.
    pub(crate) fn find(&self, tokens: &[u32], limit: usize) -> Option<Hit> {
        let mut path = vec![];
        let mut at = ROOT;
        for whole in tokens.chunks_exact(PAGE) {
            let Some(&child) = self.nodes[at].children.get(whole) else { break };
            path.push(child);
            at = child;
        }
        // Every prefix that ends in a deeper page is longer.
        (0..=path.len()).rev().find_map(|depth| {
            let parent = depth.checked_sub(1).map_or(ROOT, |d| path[d]);
            let ends = self.ends(parent, &tokens[depth * PAGE..]).into_iter();
            let lens = ends.map(|(node, common)| (node, limit.min(depth * PAGE + common)));
            let usable = lens
                .filter(|&(node, len)| len > depth * PAGE && self.can_continue(&path[..depth], node, len));
            let (node, len) = usable.max_by_key(|&(_, len)| len)?;
            path.truncate(depth);
            path.push(node);
            Some(Hit { nodes: std::mem::take(&mut path), len })
        })
    }

    /// Children that begin as `rest` does, those that share most of it among them; with how many tokens they share.
    fn ends(&self, parent: usize, rest: &[u32]) -> Vec<(usize, usize)> {
        let head = &rest[..rest.len().min(PAGE)];
        let children = &self.nodes[parent].children;
        let before = children.range::<[u32], _>((Bound::Unbounded, Bound::Included(head))).rev();
        let after = children.range::<[u32], _>((Bound::Excluded(head), Bound::Unbounded));
        let near = before.take(NEIGHBOURS).chain(after.take(NEIGHBOURS));
        let common = |tokens: &[u32]| tokens.iter().zip(head).take_while(|(a, b)| a == b).count();
        near.map(|(tokens, &node)| (node, common(tokens))).filter(|&(_, n)| n > 0).collect()
    }

    /// Whether all is there that position `len` sees of the pages of `path` and `last`. Groups of which rows see everything
    /// lack no pages.
    fn can_continue(&self, path: &[usize], last: usize, len: usize) -> bool {
        let mut limited = self.groups.iter().enumerate().filter(|(_, group)| !group.span.is_all());
        limited.all(|(g, group)| {
            let mut seen = path.iter().chain([&last]).skip(first_page(group, len));
            seen.all(|&node| self.nodes[node].pages[g] != NO_PAGE)
        })
    }

    /// Page tables of a hit, in which all pages are shared.
    pub(crate) fn share(&mut self, hit: &Hit, pools: &mut [PagePool]) -> Vec<Vec<u32>> {
        self.clock += 1;
        let mut tables = vec![vec![NO_PAGE; hit.nodes.len()]; self.groups.len()];
        for (g, group) in self.groups.iter().enumerate() {
            for (i, &node) in hit.nodes.iter().enumerate().skip(first_page(group, hit.len)) {
                let node = &mut self.nodes[node];
                node.used[g] = self.clock;
                pools[g].share(node.pages[g]);
                tables[g][i] = node.pages[g];
            }
        }
        tables
    }

    /// Keeps the pages in `tables` of a sequence that begins with `tokens`, of groups with the spans that are `kept`.
    /// Where the tree has the same page already, a whole one, the sequence uses that and gives its own back.
    pub(crate) fn insert(
        &mut self,
        tokens: &[u32],
        tables: &mut [Vec<u32>],
        pools: &mut [PagePool],
        kept: impl Fn(Span) -> bool,
    ) {
        self.clock += 1;
        let mut at = ROOT;
        for (i, part) in tokens.chunks(PAGE).enumerate() {
            let child = self.nodes[at].children.get(part).copied();
            if child.is_none() && part.len() < PAGE && self.holds(at, part) {
                return;
            }
            at = child.unwrap_or_else(|| self.add(at, part));
            for (g, table) in tables.iter_mut().enumerate() {
                if kept(self.groups[g].span) {
                    self.hold(at, g, &mut table[i], &mut pools[g]);
                }
            }
            if child.is_none() {
                self.supersede(at, pools);
            }
        }
    }

    /// Whether a page of a child begins with `tokens`; then it is of use now.
    fn holds(&mut self, parent: usize, tokens: &[u32]) -> bool {
        let ends = self.ends(parent, tokens).into_iter().filter(|&(_, common)| common == tokens.len());
        let found = ends.map(|(node, _)| node).find(|&node| !self.nodes[node].pages.contains(&NO_PAGE));
        if let Some(node) = found {
            self.nodes[node].used.fill(self.clock);
        }
        found.is_some()
    }

    fn hold(&mut self, node: usize, g: usize, own: &mut u32, pool: &mut PagePool) {
        let node = &mut self.nodes[node];
        if *own == NO_PAGE {
            return;
        }
        node.used[g] = self.clock;
        let page = node.pages[g];
        if page == NO_PAGE {
            pool.keep(*own);
            node.pages[g] = *own;
        } else if page != *own && node.tokens.len() == PAGE {
            pool.share(page);
            pool.give(*own);
            *own = page;
        }
    }

    fn add(&mut self, parent: usize, tokens: &[u32]) -> usize {
        let groups = self.groups.len();
        let (tokens, pages, used) = (Box::from(tokens), vec![NO_PAGE; groups], vec![self.clock; groups]);
        let node = Node { parent, tokens, children: BTreeMap::new(), pages, used };
        let index = match self.vacant.pop() {
            Some(index) => {
                self.nodes[index] = node;
                index
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        let key = self.nodes[index].tokens.clone();
        self.nodes[parent].children.insert(key, index);
        index
    }

    /// Removes a partly filled page that `node`, which is new, makes useless.
    fn supersede(&mut self, node: usize, pools: &mut [PagePool]) {
        let new = &self.nodes[node];
        let below = (Bound::Unbounded, Bound::Excluded(&*new.tokens));
        let before = self.nodes[new.parent].children.range::<[u32], _>(below).next_back();
        let Some((tokens, &old)) = before else { return };
        let has_all = |(new, old): (&u32, &u32)| *new != NO_PAGE || *old == NO_PAGE;
        if new.tokens.starts_with(tokens) && new.pages.iter().zip(&self.nodes[old].pages).all(has_all) {
            self.remove(old, pools);
        }
    }

    /// Lets go of the page of group `group` that was of no use for longest and that no sequence holds. `false` if there
    /// is none. Without a page of a group of which rows see everything, nothing that lies deeper can be reached: those go
    /// from the leaves.
    pub(crate) fn evict(&mut self, group: usize, pools: &mut [PagePool]) -> bool {
        let limited = !self.groups[group].span.is_all();
        let idle = |node: &Node| {
            let page = node.pages[group];
            page != NO_PAGE && pools[group].is_idle(page) && (limited || node.children.is_empty())
        };
        // The root and vacant places have no pages.
        let candidates = self.nodes.iter().enumerate().filter(|(_, n)| !n.pages.is_empty() && idle(n));
        let Some((oldest, _)) = candidates.min_by_key(|(_, node)| node.used[group]) else { return false };
        pools[group].forget(std::mem::replace(&mut self.nodes[oldest].pages[group], NO_PAGE));
        self.prune(oldest, pools);
        true
    }

    /// Lets go of everything.
    pub(crate) fn clear(&mut self, pools: &mut [PagePool]) {
        for node in std::mem::replace(&mut self.nodes, vec![Node::default()]) {
            release(&node, pools);
        }
        self.vacant.clear();
    }

    /// How many pages of group `g` of a hit sequences hold: only the others come out of what others could have.
    pub(crate) fn in_use(&self, hit: &Hit, g: usize, pool: &PagePool) -> usize {
        let seen = hit.nodes.iter().skip(first_page(&self.groups[g], hit.len));
        seen.filter(|&&node| !pool.is_idle(self.nodes[node].pages[g])).count()
    }

    /// Removes `node` and those above it, as long as they are leaves at which no prefix can end.
    fn prune(&mut self, mut node: usize, pools: &mut [PagePool]) {
        while node != ROOT && self.nodes[node].children.is_empty() && !self.can_end(&self.nodes[node]) {
            node = self.remove(node, pools);
        }
    }

    /// Whether the node has all that the position behind it sees of it: where that begins a page, nothing of groups of
    /// which rows see their own page alone.
    fn can_end(&self, node: &Node) -> bool {
        let whole = node.tokens.len() == PAGE;
        let mut pages = self.groups.iter().zip(&node.pages);
        pages.all(|(group, &page)| page != NO_PAGE || whole && group.span == Span::Pages(1))
    }

    /// Removes a node without children; returns its parent.
    fn remove(&mut self, node: usize, pools: &mut [PagePool]) -> usize {
        let removed = std::mem::take(&mut self.nodes[node]);
        release(&removed, pools);
        self.nodes[removed.parent].children.remove(&removed.tokens);
        self.vacant.push(node);
        removed.parent
    }
}

fn release(node: &Node, pools: &mut [PagePool]) {
    for (&page, pool) in node.pages.iter().zip(pools) {
        if page != NO_PAGE {
            pool.forget(page);
        }
    }
}
