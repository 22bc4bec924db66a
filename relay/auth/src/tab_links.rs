//! Links for one tab: each opens the owner's view once, within a short time, and from then on for that
//! tab alone.
//!
//! Behind a proxy that does not identify its users, the owner's key alone is not enough: other
//! applications of the same origin run in the owner's browser and may read it.

use nodeglass_protocol::handshake::Key;
use nodeglass_protocol::share::ShareId;
use std::collections::HashMap;

/// Lifetime of an unused link, in ms.
pub const UNUSED_MS: u64 = 120_000;
/// Maximum time for which a tab may be disconnected before its session ends, in ms.
const IDLE_MS: u64 = 12 * 3_600_000;
/// Maximum number of links and sessions; the least recently used makes room, connected ones last.
const MAX_LINKS: usize = 64;

/// Unused links, and the sessions of used ones.
#[derive(Debug, Default)]
pub(super) struct TabLinks {
    open: HashMap<ShareId, TabLink>,
}

#[derive(Debug)]
struct TabLink {
    key: Key,
    is_redeemed: bool,
    /// When it was created, last proven, or last disconnected.
    used_ms: u64,
    /// Connections of the tab: more than one until a broken one is detected.
    connections: u32,
}

impl TabLink {
    fn is_over(&self, now_ms: u64) -> bool {
        let lasts_ms = if self.is_redeemed { IDLE_MS } else { UNUSED_MS };
        self.connections == 0 && now_ms.saturating_sub(self.used_ms) >= lasts_ms
    }
}

impl TabLinks {
    /// Adds a link whose holder proves `key`.
    pub(super) fn open(&mut self, id: ShareId, key: Key, now_ms: u64) {
        self.open.retain(|_, link| !link.is_over(now_ms));
        if self.open.len() >= MAX_LINKS {
            let oldest = self.open.iter().min_by_key(|(_, link)| (link.connections > 0, link.used_ms));
            let oldest = oldest.map(|(id, _)| id.clone());
            oldest.and_then(|id| self.open.remove(&id));
        }
        self.open.insert(id, TabLink { key, is_redeemed: false, used_ms: now_ms, connections: 0 });
    }

    /// Returns the key to prove: the key of the link, or of its session.
    pub(super) fn key(&self, id: &ShareId, now_ms: u64) -> Option<Key> {
        self.open.get(id).filter(|link| !link.is_over(now_ms)).map(|link| link.key.clone())
    }

    /// Records a proof of `proved`; the first one replaces the key by `session`. Returns false if another
    /// tab was first.
    pub(super) fn redeem(&mut self, id: &ShareId, proved: &Key, session: Key, now_ms: u64) -> bool {
        let Some(link) = self.open.get_mut(id).filter(|link| !link.is_over(now_ms) && link.key == *proved)
        else {
            return false;
        };
        link.used_ms = now_ms;
        if !link.is_redeemed {
            (link.is_redeemed, link.key) = (true, session);
        }
        true
    }
}

impl TabLinks {
    /// Records that a tab connected.
    pub(super) fn connect(&mut self, id: &ShareId) {
        if let Some(link) = self.open.get_mut(id) {
            link.connections += 1;
        }
    }

    /// Records that a connection of a tab ended.
    pub(super) fn disconnect(&mut self, id: &ShareId, now_ms: u64) {
        if let Some(link) = self.open.get_mut(id) {
            link.connections = link.connections.saturating_sub(1);
            link.used_ms = now_ms;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::handshake::LEN;

    const LINK: Key = Key::new([1; LEN]);
    const SESSION: Key = Key::new([2; LEN]);

    fn id(name: &str) -> ShareId {
        ShareId::new(name).unwrap()
    }

    #[test]
    fn t27_a_link_for_one_tab_opens_once_and_its_session_again_and_again() {
        let mut links = TabLinks::default();
        links.open(id("a"), LINK, 0);
        assert_eq!(links.key(&id("a"), 1), Some(LINK));
        assert!(links.redeem(&id("a"), &LINK, SESSION, 1));
        assert!(!links.redeem(&id("a"), &LINK, Key::new([3; LEN]), 2), "a second tab was accepted");
        for at_ms in [2, UNUSED_MS + 1, IDLE_MS] {
            assert_eq!(links.key(&id("a"), at_ms), Some(SESSION));
            assert!(links.redeem(&id("a"), &SESSION, Key::new([3; LEN]), at_ms));
        }
        assert_eq!(links.key(&id("a"), 2 * IDLE_MS), None);
        assert_eq!(links.key(&id("b"), 0), None);
    }

    #[test]
    fn t27_a_session_lasts_while_its_tab_is_connected_and_twelve_hours_more() {
        let mut links = TabLinks::default();
        links.open(id("a"), LINK, 0);
        assert!(links.redeem(&id("a"), &LINK, SESSION, 1));
        links.connect(&id("a"));
        // Neither time nor other links end the session of a connected tab.
        for n in 0..1_000 {
            links.open(id(&format!("l{n}")), LINK, 30 * IDLE_MS + n);
        }
        let left_ms = 40 * IDLE_MS;
        links.disconnect(&id("a"), left_ms);
        assert_eq!(links.key(&id("a"), left_ms + IDLE_MS - 1), Some(SESSION));
        assert_eq!(links.key(&id("a"), left_ms + IDLE_MS), None);
    }

    #[test]
    fn an_unused_link_is_over_after_two_minutes() {
        let mut links = TabLinks::default();
        links.open(id("a"), LINK, 0);
        assert_eq!(links.key(&id("a"), UNUSED_MS), None);
        assert!(!links.redeem(&id("a"), &LINK, SESSION, UNUSED_MS));
    }

    #[test]
    fn the_number_of_links_is_bounded() {
        let mut links = TabLinks::default();
        for at_ms in 0..1_000 {
            links.open(id(&format!("l{at_ms}")), LINK, at_ms);
        }
        assert_eq!(links.open.len(), MAX_LINKS);
        assert!(links.key(&id("l999"), 999).is_some() && links.key(&id("l900"), 999).is_none());
    }
}
