//! Watches without a running relay: its parts run within this process.

use super::{Order, Update};
use nodeglass_app::embedded::Embedded;
use nodeglass_config::Config;
use nodeglass_live::Subscriber;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::ServerMessage;
use nodeglass_protocol::request::Response;
use nodeglass_share::Viewer;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Maximum number of pending requests.
const MAX_PENDING: usize = 5;

/// A source within this process.
pub struct Own {
    relay: Embedded,
    pending: JoinSet<(u32, Response)>,
}

impl Own {
    /// Starts watching as the settings say, at the default intervals or at one for all nodes.
    ///
    /// # Errors
    /// Any failure of the start, as a complete sentence for the user.
    pub async fn start(config: Config, sample_interval: Option<Duration>) -> anyhow::Result<Self> {
        Ok(Self { relay: Embedded::start_sampling(config, sample_interval).await?, pending: JoinSet::new() })
    }

    /// Passes on what the relay's parts publish until the terminal ends, then stops all probes.
    pub async fn run(mut self, mut orders: mpsc::Receiver<Order>, updates: mpsc::Sender<Update>) {
        if let Some(mut subscriber) = self.relay.hub().join(Form::Binary, Viewer::Owner).await {
            let connected = updates.send(Update::Connected(Box::new(self.relay.welcome()))).await;
            if connected.is_ok() {
                self.serve(&mut subscriber, &mut orders, &updates).await;
            }
        }
        self.pending.shutdown().await;
        self.relay.stop().await;
    }

    async fn serve(
        &mut self,
        subscriber: &mut Subscriber,
        orders: &mut mpsc::Receiver<Order>,
        updates: &mpsc::Sender<Update>,
    ) {
        loop {
            let message = tokio::select! {
                // The terminal wants something.
                order = orders.recv() => match order {
                    Some(Order::Subscribe(topics)) => {
                        subscriber.set_topics(topics).await;
                        continue;
                    }
                    Some(Order::Resync(topic)) => {
                        subscriber.resync(topic).await;
                        continue;
                    }
                    Some(Order::Request { number, request }) if self.pending.len() < MAX_PENDING => {
                        let actions = self.relay.actions().clone();
                        self.pending.spawn(async move { (number, actions.request(request).await) });
                        continue;
                    }
                    Some(Order::Request { number, .. }) => {
                        let response = Response::Refused("too many requests at once".into());
                        ServerMessage::Response { number, response }
                    }
                    None => return,
                },
                // The fleet changed.
                frame = subscriber.next() => {
                    let Some(frame) = frame else { return };
                    match Form::Binary.decode(&frame) {
                        Ok(message) => message,
                        Err(error) => {
                            tracing::error!(%error, "failed to read a frame of this process");
                            continue;
                        }
                    }
                }
                // A request was answered.
                Some(Ok((number, response))) = self.pending.join_next() => ServerMessage::Response { number, response },
            };
            if updates.send(Update::Message(Box::new(message))).await.is_err() {
                return;
            }
        }
    }
}
