//! The relays that announce themselves under the name of a cluster, and which of them are of another one; pure.

use super::message::{Announcement, ClusterName, MAX_NODES, RelayId};
use nodeglass_protocol::Text;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// A relay without an announcement for this long is gone.
pub(crate) const GONE: Duration = Duration::from_secs(5);
/// Maximum number of relays of a name; further ones are ignored.
pub(crate) const MAX_RELAYS: usize = 256;

/// Relays by their announcements.
///
/// Of several SLURM controllers under one name, one counts: this relay's own, or else the first that lists jobs, for as long as a relay
/// lists its jobs. Relays of another controller are those of another cluster. A relay without SLURM has no controller, and older relays
/// announce none: they belong to whichever cluster has the name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Relays {
    announced: BTreeMap<RelayId, (Announcement, Instant)>,
    controller: Option<Text>,
    /// Whether the controller is this relay's own.
    is_own: bool,
}

impl Relays {
    /// None so far; `controller` is this relay's own.
    pub(crate) fn of(controller: Option<Text>) -> Self {
        Self { announced: BTreeMap::new(), is_own: controller.is_some(), controller }
    }

    /// Takes an announcement; returns whether it says something new.
    pub(crate) fn take(&mut self, mut announcement: Announcement, now: Instant) -> bool {
        announcement.nodes.truncate(MAX_NODES);
        let id = announcement.relay;
        if self.announced.len() >= MAX_RELAYS && !self.announced.contains_key(&id) {
            return false;
        }
        let before = self.announced.insert(id, (announcement, now));
        self.choose();
        before.map(|(before, _)| before).as_ref() != self.announced.get(&id).map(|(now, _)| now)
    }

    /// Drops relays that have not announced themselves for a while; returns whether there are any.
    pub(crate) fn expire(&mut self) -> bool {
        let before = self.announced.len();
        self.announced.retain(|_, (_, at)| at.elapsed() < GONE);
        self.choose();
        self.announced.len() != before
    }

    /// Chooses the controller that counts.
    fn choose(&mut self) {
        let mut listed =
            self.announced.values().filter(|(relay, _)| relay.has_jobs).map(|(relay, _)| &relay.controller);
        if !self.is_own && listed.clone().all(|of| of.is_none() || *of != self.controller) {
            self.controller = listed.find_map(Clone::clone).or(self.controller.take());
        }
    }

    fn is_foreign(&self, relay: &Announcement) -> bool {
        let of = relay.controller.as_ref();
        of.is_some_and(|of| self.controller.as_ref().is_some_and(|controller| controller != of))
    }

    /// The relays of this cluster.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Announcement> + Clone {
        self.announced.values().map(|(relay, _)| relay).filter(|relay| !self.is_foreign(relay))
    }

    /// Returns whether a relay of this cluster has announced itself.
    pub(crate) fn contains(&self, relay: RelayId) -> bool {
        self.announced.get(&relay).is_some_and(|(relay, _)| !self.is_foreign(relay))
    }

    /// Returns whether a relay of this cluster has announced itself recently.
    pub(crate) fn is_alive(&self, relay: RelayId) -> bool {
        self.contains(relay) && self.announced.get(&relay).is_some_and(|(_, at)| at.elapsed() < GONE)
    }

    /// Returns whether a relay is of another cluster.
    pub(crate) fn is_of_other_cluster(&self, relay: RelayId) -> bool {
        self.announced.get(&relay).is_some_and(|(relay, _)| self.is_foreign(relay))
    }

    /// The controller of another cluster of this name, if this relay gives the name up to it. There are no leases, else the bucket decides.
    /// One that `has_name` keeps it, unless the other one has leases or a smaller controller.
    pub(crate) fn rival(&self, has_name: bool) -> Option<&Text> {
        let own = self.controller.as_ref().filter(|_| self.is_own)?;
        let all = self.announced.values().map(|(relay, _)| relay);
        let mut foreign = all.filter(|relay| relay.has_jobs && self.is_foreign(relay));
        let precedes = |relay: &Announcement| relay.has_leases || relay.controller.as_ref() < Some(own);
        foreign.find(|relay| !has_name || precedes(relay))?.controller.as_ref()
    }

    /// States that there is another cluster of this name, a complete sentence.
    pub(crate) fn conflict(&self, cluster: &ClusterName) -> Option<Text> {
        let foreign = self.announced.values().find(|(relay, _)| self.is_foreign(relay));
        let (shown, other) = (self.controller.as_ref()?, foreign?.0.controller.as_ref()?);
        Some(Text::new(format!(
            "two clusters publish as {cluster} over NATS: the one with the controller {shown} is shown, the one with the controller \
             {other} is not; give one of them another name (--nats-cluster) or a NATS account of its own"
        )))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use nodeglass_protocol::NodeName;

    /// A relay with the digit `number` as its id.
    pub(crate) fn announcement(number: u8, has_jobs: bool, node: &str) -> Announcement {
        Announcement {
            relay: id(number),
            user: "alice".into(),
            version: "1".into(),
            wire: 1,
            has_jobs,
            has_leases: false,
            controller: None,
            nodes: vec![NodeName::new(node).unwrap()],
        }
    }

    pub(crate) fn id(number: u8) -> RelayId {
        format!("{number:016x}").parse().unwrap()
    }

    pub(crate) fn announced(all: impl IntoIterator<Item = Announcement>) -> Relays {
        taken(Relays::default(), all)
    }

    fn taken(mut relays: Relays, all: impl IntoIterator<Item = Announcement>) -> Relays {
        for announcement in all {
            relays.take(announcement, Instant::now());
        }
        relays
    }

    fn of(controller: &str, number: u8) -> Announcement {
        Announcement { controller: Some(controller.into()), ..announcement(number, true, "n1") }
    }

    fn ids(relays: &Relays) -> Vec<RelayId> {
        relays.iter().map(|relay| relay.relay).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_clusters_of_one_name_the_first_counts_until_it_is_gone() {
        let hpc = "hpc".parse().unwrap();
        let mut relays =
            announced([of("ctl-b", 9), of("ctl-a", 1), of("ctl-b", 2), announcement(3, false, "m")]);
        assert_eq!(ids(&relays), [id(2), id(3), id(9)]);
        assert!(relays.is_of_other_cluster(id(1)) && !relays.contains(id(1)) && !relays.is_alive(id(1)));
        let why = relays.conflict(&hpc).unwrap();
        assert!(why.as_str().contains("ctl-b is shown, the one with the controller ctl-a is not"), "{why}");

        tokio::time::advance(GONE).await;
        relays.take(of("ctl-a", 1), Instant::now());
        assert!(relays.expire());
        assert_eq!((ids(&relays), relays.conflict(&hpc)), (vec![id(1)], None));
    }

    #[tokio::test]
    async fn a_cluster_that_shares_nothing_is_named_but_never_chosen() {
        let idle = Announcement { has_jobs: false, ..of("ctl-a", 1) };
        let relays = announced([idle.clone(), of("ctl-b", 2)]);
        assert_eq!(ids(&relays), [id(2)]);
        assert!(relays.conflict(&"hpc".parse().unwrap()).is_some());
        assert_eq!(announced([idle]).conflict(&"hpc".parse().unwrap()), None);
    }

    #[tokio::test]
    async fn relays_without_a_controller_belong_to_every_cluster() {
        let relays = announced([announcement(1, true, "n1"), announcement(2, false, "n2"), of("ctl-a", 3)]);
        assert_eq!(ids(&relays), [id(1), id(2), id(3)]);
        assert_eq!(taken(Relays::of(Some("ctl-b".into())), [announcement(1, true, "n1")]).rival(false), None);
    }

    #[tokio::test]
    async fn exactly_one_of_two_clusters_gives_its_name_up() {
        let (a, b) = (Some(Text::from("ctl-a")), Some(Text::from("ctl-b")));
        let of_a = taken(Relays::of(a.clone()), [of("ctl-b", 2)]);
        let of_b = taken(Relays::of(b.clone()), [of("ctl-a", 1)]);
        assert_eq!((of_a.rival(true), of_b.rival(true)), (None, a.as_ref()), "both have published");
        assert_eq!(of_a.rival(false), b.as_ref(), "the other one was there first");
        let leased = Announcement { has_leases: true, ..of("ctl-b", 2) };
        assert_eq!(taken(Relays::of(a), [leased]).rival(true), b.as_ref());
    }

    #[tokio::test]
    async fn relays_without_end_take_no_memory() {
        let one = announcement(1, false, "n1");
        let relays = announced(
            (0..1_000_u64)
                .map(|id| Announcement { relay: format!("{id:016x}").parse().unwrap(), ..one.clone() }),
        );
        assert_eq!(relays.iter().count(), MAX_RELAYS);
    }
}
