//! The one implementation of applying deltas to a picture, used by the page, tests and scripts.

use super::change::{Change, Readings};
use super::codec;
use super::message::{Delta, Histories};
use crate::finding::{self, Finding};
use crate::note::{self, Note};
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
        match change {
            Change::Relay(status) => {
                self.relay.clone_from(status);
                changed(ChangedPart::Relay);
            }
            Change::Jobs(jobs) => {
                self.jobs.clone_from(jobs);
                changed(ChangedPart::Jobs);
            }
            Change::Nodes(names) => {
                let mut old = std::mem::take(&mut self.nodes);
                self.nodes.extend(names.iter().map(
                    |name| match old.iter().position(|node| node.name == *name) {
                        Some(index) => old.swap_remove(index),
                        None => NodePicture::new(name.clone()),
                    },
                ));
                changed(ChangedPart::Nodes);
            }
            Change::AuditLog(audit_log) => {
                self.audit_log.clone_from(audit_log);
                changed(ChangedPart::AuditLog);
            }
            Change::Sharing(sharing) => {
                self.sharing.clone_from(sharing);
                changed(ChangedPart::Sharing);
            }
            Change::Notes { removed, changed: notes } => {
                let is_replaced =
                    |note: &Note| removed.contains(&note.id) || notes.iter().any(|new| new.id == note.id);
                self.notes.retain(|note| !is_replaced(note));
                self.notes.extend(notes.iter().cloned());
                self.notes.sort_unstable_by_key(note::order);
                changed(ChangedPart::Notes);
            }
            Change::Findings { removed, changed: findings } => {
                let is_replaced = |finding: &Finding| {
                    removed.contains(&finding.key) || findings.iter().any(|new| new.key == finding.key)
                };
                self.findings.retain(|finding| !is_replaced(finding));
                self.findings.extend(findings.iter().cloned());
                self.findings.sort_unstable_by(finding::order);
                changed(ChangedPart::Findings);
            }
            Change::Insights(insights) => {
                self.insights.clone_from(insights);
                changed(ChangedPart::Insights);
            }
            Change::Head { node, head } => {
                self.node_mut(*node)?.head.clone_from(&**head);
                changed(ChangedPart::Head(*node as usize));
            }
            Change::Gpus { node, gpus } => {
                self.node_mut(*node)?.gpus.clone_from(gpus);
                changed(ChangedPart::Gpus(*node as usize));
            }
            Change::Processes { node, processes } => {
                self.node_mut(*node)?.processes.clone_from(processes);
                changed(ChangedPart::Processes(*node as usize));
            }
            Change::Health { node, changed: gpus_changed } => {
                let gpus = &mut self.node_mut(*node)?.gpus;
                for change in gpus_changed {
                    let gpu = gpus.get_mut(change.gpu as usize).ok_or(ApplyError::Unknown("a GPU"))?;
                    change.apply(&mut gpu.health)?;
                }
                changed(ChangedPart::Health(*node as usize));
            }
            Change::JobUsage { node, job_usage } => {
                self.node_mut(*node)?.job_usage.clone_from(job_usage);
                changed(ChangedPart::JobUsage(*node as usize));
            }
            Change::Cores { node, cores } => {
                self.node_mut(*node)?.cores.clone_from(cores);
                changed(ChangedPart::Cores(*node as usize));
            }
            Change::History { node, history } => {
                self.node_mut(*node)?.history.clone_from(history);
                changed(ChangedPart::History(*node as usize));
            }
            Change::Readings(Readings::Packed(bytes)) => codec::apply(bytes, self, changed)?,
            Change::Readings(Readings::Plain(nodes)) => {
                for readings in nodes {
                    readings.apply(self, changed)?;
                }
            }
        }
        Ok(())
    }
}
