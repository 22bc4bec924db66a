//! The one implementation of applying deltas to a picture, used by the page, tests and scripts.

use super::change::{Change, HealthChange, Readings};
use super::codec;
use super::message::{Delta, Histories};
use crate::NodeName;
use crate::finding;
use crate::note;
use crate::picture::{ApplyError, ChangedPart, NodePicture, Picture};

impl Picture {
    /// Applies one delta and reports each change to `touched`.
    ///
    /// # Errors
    /// [`ApplyError`] if the delta does not match the picture, which is then inconsistent and must
    /// be replaced by a snapshot.
    pub fn apply(&mut self, delta: &Delta, mut changed: impl FnMut(ChangedPart)) -> Result<(), ApplyError> {
        self.at_ms = self.at_ms.saturating_add(u64::from(delta.elapsed_ms));
        delta.changes.iter().try_for_each(|change| self.apply_change(change, &mut changed))
    }

    /// Applies histories that were sent separately.
    ///
    /// # Errors
    /// [`ApplyError`] if a node is not in the picture.
    pub fn apply_histories(
        &mut self,
        histories: Histories,
        mut changed: impl FnMut(ChangedPart),
    ) -> Result<(), ApplyError> {
        for (node, history) in histories.nodes {
            self.node_mut(node)?.history = Some(history);
            changed(ChangedPart::History(node as usize));
        }
        Ok(())
    }

    fn apply_change(
        &mut self,
        change: &Change,
        changed: &mut impl FnMut(ChangedPart),
    ) -> Result<(), ApplyError> {
        let part = match change {
            Change::Readings(Readings::Packed(bytes)) => return codec::apply(bytes, self, changed),
            Change::Readings(Readings::Plain(nodes)) => {
                return nodes.iter().try_for_each(|readings| readings.apply(self, changed));
            }
            Change::Relay(status) => set(&mut self.relay, status, ChangedPart::Relay),
            Change::Jobs(jobs) => set(&mut self.jobs, jobs, ChangedPart::Jobs),
            Change::AuditLog(log) => set(&mut self.audit_log, log, ChangedPart::AuditLog),
            Change::Sharing(sharing) => set(&mut self.sharing, sharing, ChangedPart::Sharing),
            Change::Insights(insights) => set(&mut self.insights, insights, ChangedPart::Insights),
            Change::Notes { removed, changed } => {
                replace(&mut self.notes, removed, changed, |note| &note.id);
                self.notes.sort_unstable_by_key(note::order);
                ChangedPart::Notes
            }
            Change::Findings { removed, changed } => {
                replace(&mut self.findings, removed, changed, |finding| &finding.key);
                self.findings.sort_unstable_by(finding::order);
                ChangedPart::Findings
            }
            Change::Nodes(names) => self.set_nodes(names),
            Change::Head { node, head } => {
                self.set_part(*node, ChangedPart::Head, |of| &mut of.head, head.as_ref())?
            }
            Change::Gpus { node, gpus } => {
                self.set_part(*node, ChangedPart::Gpus, |of| &mut of.gpus, gpus)?
            }
            Change::Processes { node, processes } => {
                self.set_part(*node, ChangedPart::Processes, |of| &mut of.processes, processes)?
            }
            Change::JobUsage { node, job_usage } => {
                self.set_part(*node, ChangedPart::JobUsage, |of| &mut of.job_usage, job_usage)?
            }
            Change::Cores { node, cores } => {
                self.set_part(*node, ChangedPart::Cores, |of| &mut of.cores, cores)?
            }
            Change::History { node, history } => {
                self.set_part(*node, ChangedPart::History, |of| &mut of.history, history)?
            }
            Change::Health { node, changed } => self.apply_health(*node, changed)?,
        };
        changed(part);
        Ok(())
    }

    /// Lists nodes in a new order; known nodes keep their state.
    fn set_nodes(&mut self, names: &[NodeName]) -> ChangedPart {
        let mut old = std::mem::take(&mut self.nodes);
        self.nodes.extend(names.iter().map(|name| match old.iter().position(|node| node.name == *name) {
            Some(index) => old.swap_remove(index),
            None => NodePicture::new(name.clone()),
        }));
        ChangedPart::Nodes
    }

    /// Replaces a part of a node.
    fn set_part<T: Clone>(
        &mut self,
        node: u32,
        changed: fn(usize) -> ChangedPart,
        part: fn(&mut NodePicture) -> &mut T,
        new: &T,
    ) -> Result<ChangedPart, ApplyError> {
        Ok(set(part(self.node_mut(node)?), new, changed(node as usize)))
    }

    fn apply_health(&mut self, node: u32, changes: &[HealthChange]) -> Result<ChangedPart, ApplyError> {
        let gpus = &mut self.node_mut(node)?.gpus;
        for change in changes {
            let gpu = gpus.get_mut(change.gpu as usize).ok_or(ApplyError::Unknown("a GPU"))?;
            change.apply(&mut gpu.health)?;
        }
        Ok(ChangedPart::Health(node as usize))
    }
}

/// Replaces a value; returns which part of the picture it is.
fn set<T: Clone>(old: &mut T, new: &T, part: ChangedPart) -> ChangedPart {
    old.clone_from(new);
    part
}

/// Removes items by their key, and replaces or adds others.
fn replace<T: Clone, K: PartialEq>(items: &mut Vec<T>, removed: &[K], changed: &[T], key: fn(&T) -> &K) {
    items.retain(|item| !removed.contains(key(item)) && !changed.iter().any(|new| key(new) == key(item)));
    items.extend_from_slice(changed);
}
