//! The handle of the feed: the connection's state, subscriptions, and requests.

use super::credential::Credential;
use super::disconnect::DisconnectReason;
use super::pending_requests::{PendingRequests, messages};
use crate::fleet::{FleetStore, LogSignals};
use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures_channel::oneshot::Receiver;
use futures_util::future::{Either, select};
use gloo_timers::future::TimeoutFuture;
use leptos::prelude::*;
use nodeglass_protocol::live::ClientMessage;
use nodeglass_protocol::range::{RangeHistory, RangeQuery};
use nodeglass_protocol::report::{ReportAnswer, ReportQuery};
use nodeglass_protocol::request::{LogRef, Request, Response};
use std::sync::Arc;

/// Time limit for a response, in ms: SLURM's own commands time out after 10 s.
const ANSWER_MS: u32 = 20_000;

/// State of the connection to the relay.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkState {
    /// Looking for a key.
    Starting,
    /// The tab has no key; the user must provide one.
    NoKey,
    /// The first connection is being established.
    Connecting,
    /// Connected.
    Live,
    /// Lost, and being retried.
    Lost(DisconnectReason),
    /// Ended for good until the user acts.
    Stopped(DisconnectReason),
}

/// Handle of the feed for the views. Clones share the same feed.
#[derive(Clone)]
pub struct Feed {
    link: ArcRwSignal<LinkState>,
    last_message_ms: ArcStoredValue<f64>,
    commands: UnboundedSender<FeedCommand>,
    pending: Arc<PendingRequests<Response>>,
    pending_ranges: Arc<PendingRequests<RangeHistory>>,
    pending_reports: Arc<PendingRequests<ReportAnswer>>,
}

/// Commands from the views to the feed.
#[derive(Debug)]
pub enum FeedCommand {
    /// Send a message to the relay.
    Send(ClientMessage),
    /// Use this key from now on.
    UseKey(Credential),
    /// Reconnect without waiting.
    ReconnectNow,
    /// Disconnect: the page is being left, and the browser may keep it for the back button.
    Leave,
}

impl Feed {
    /// Creates the handle, and the receiver of its commands.
    pub fn new() -> (Self, UnboundedReceiver<FeedCommand>) {
        let (commands, inbox) = unbounded();
        let feed = Self {
            link: ArcRwSignal::new(LinkState::Starting),
            last_message_ms: ArcStoredValue::new(0.0),
            commands,
            pending: Arc::default(),
            pending_ranges: Arc::default(),
            pending_reports: Arc::default(),
        };
        (feed, inbox)
    }

    /// Returns the state of the connection.
    pub fn link(&self) -> LinkState {
        self.link.get()
    }

    /// Returns whether the page is connected, so that what it shows is current.
    pub fn is_live(&self) -> bool {
        self.link.with(|link| *link == LinkState::Live)
    }

    /// Returns when the last message arrived, on the page's clock; 0 before the first one.
    pub fn last_message_ms(&self) -> f64 {
        self.last_message_ms.get_value()
    }

    /// Records that a message arrived.
    pub fn note_message(&self, page_ms: f64) {
        self.last_message_ms.set_value(page_ms);
    }

    /// Subscribes to the topics that the fleet shows now.
    pub fn subscribe(&self, fleet: &FleetStore) {
        let _ = self.commands.unbounded_send(FeedCommand::Send(ClientMessage::Subscribe(fleet.topics())));
    }

    /// Follows these logs from now on, and no others.
    pub fn follow_logs(&self, fleet: &FleetStore, wanted: &[LogRef]) -> Vec<LogSignals> {
        let cells = fleet.follow(wanted);
        let _ = self.commands.unbounded_send(FeedCommand::Send(ClientMessage::Follow(wanted.to_vec())));
        cells
    }

    /// Sends a request and awaits its response. Without a connection it is refused with a message.
    pub async fn request(&self, request: Request) -> Response {
        let message = |number| ClientMessage::Request { number, request };
        match self.ask(&self.pending, message).await {
            Ok(response) => response,
            Err(why) => Response::Refused(why.into()),
        }
    }

    /// Sends a request that may take any time and awaits its response, however long.
    pub async fn long_request(&self, request: Request) -> Response {
        let message = |number| ClientMessage::Request { number, request };
        let response = match self.send(&self.pending, message) {
            Ok((_, response)) => response.await.map_err(|_| messages::LINK_LOST),
            Err(why) => Err(why),
        };
        response.unwrap_or_else(|why| Response::Refused(why.into()))
    }

    /// Queries long-term history; `None` if there is no response.
    pub async fn range(&self, query: RangeQuery) -> Option<RangeHistory> {
        self.ask(&self.pending_ranges, |number| ClientMessage::Range { number, query }).await.ok()
    }

    /// Queries reports; `None` if there is no response.
    pub async fn report(&self, query: ReportQuery) -> Option<ReportAnswer> {
        self.ask(&self.pending_reports, |number| ClientMessage::Report { number, query }).await.ok()
    }

    /// Sends a message with the number of a pending request, and returns both.
    ///
    /// # Errors
    /// There is no connection.
    fn send<T>(
        &self,
        pending: &PendingRequests<T>,
        message: impl FnOnce(u32) -> ClientMessage,
    ) -> Result<(u32, Receiver<T>), &'static str> {
        if self.link.get_untracked() != LinkState::Live {
            return Err(messages::NO_LINK);
        }
        let (number, response) = pending.register();
        let _ = self.commands.unbounded_send(FeedCommand::Send(message(number)));
        Ok((number, response))
    }

    /// Sends a message with the number of a pending request, and awaits its response.
    ///
    /// # Errors
    /// The reason why there is none, for the user.
    async fn ask<T>(
        &self,
        pending: &PendingRequests<T>,
        message: impl FnOnce(u32) -> ClientMessage,
    ) -> Result<T, &'static str> {
        let (number, response) = self.send(pending, message)?;
        match select(response, TimeoutFuture::new(ANSWER_MS)).await {
            Either::Left((response, _)) => response.map_err(|_| messages::LINK_LOST),
            Either::Right(_) => {
                pending.cancel(number);
                Err(messages::NO_ANSWER)
            }
        }
    }

    /// Delivers the response to a query for reports.
    pub fn resolve_report(&self, number: u32, answer: ReportAnswer) {
        self.pending_reports.resolve(number, answer);
    }

    /// Delivers the response to a query for long-term history.
    pub fn resolve_range(&self, number: u32, range: RangeHistory) {
        self.pending_ranges.resolve(number, range);
    }

    /// Delivers the response to a request.
    pub fn resolve(&self, number: u32, response: Response) {
        self.pending.resolve(number, response);
    }

    /// Tries a key that the user entered.
    pub fn use_key(&self, key: Credential) {
        let _ = self.commands.unbounded_send(FeedCommand::UseKey(key));
    }

    /// Reconnects now.
    pub fn reconnect_now(&self) {
        let _ = self.commands.unbounded_send(FeedCommand::ReconnectNow);
    }

    /// Disconnects because the page is being left.
    pub fn leave(&self) {
        let _ = self.commands.unbounded_send(FeedCommand::Leave);
    }

    /// Returns the state of the connection; does not subscribe.
    pub fn link_untracked(&self) -> LinkState {
        self.link.get_untracked()
    }

    /// Sets the state of the connection.
    pub fn set_link(&self, link: LinkState) {
        self.link.set(link);
    }

    /// Fails every pending request because the connection is lost.
    pub fn fail_pending(&self) {
        self.pending.cancel_all();
        self.pending_ranges.cancel_all();
        self.pending_reports.cancel_all();
    }
}
