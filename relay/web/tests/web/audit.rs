//! The audit log: what guests view and what the owner does is recorded, and shown to the owner only.

use crate::harness::{LONG, NONCE, Page, TestRelay, USER_HEADER};
use nodeglass_access::peer::Peer;
use nodeglass_access::user;
use nodeglass_protocol::audit::{AuditLog, AuditRecord, View, ViewClient, ViewEnd};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::handshake::Exchange;
use nodeglass_protocol::live::ticket::Ticket;
use nodeglass_protocol::live::{ClientMessage, KeyId, ServerMessage};
use nodeglass_protocol::request::{Request, Response};
use nodeglass_protocol::share::ShareLink;
use nodeglass_protocol::version::{LIVE_WIRE, VersionRange};
use std::time::Duration;

/// Creates a share of everything.
async fn share(relay: &TestRelay) -> (ShareLink, Ticket) {
    let body = r#"{"scope":"all","label":"for Bob"}"#;
    let reply = relay
        .send_raw(&format!(
            "POST /api/v1/shares HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\
             {USER_HEADER}: alice\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            relay.host(),
            relay.key.reveal(),
            body.len()
        ))
        .await;
    let made: ShareLink = serde_json::from_str(&reply.body).expect(&reply.body);
    let (_, ticket) = made.link.as_ref().unwrap().split_once("#s=").unwrap();
    let ticket = ticket.parse().unwrap();
    (made, ticket)
}

/// Opens the page as a guest.
async fn enter(relay: &TestRelay, ticket: &Ticket, headers: &[(&'static str, &str)]) -> Page {
    let origin = format!("http://{}", relay.host());
    let headers: Vec<_> = [("Origin", origin.as_str())].into_iter().chain(headers.iter().copied()).collect();
    let mut page = relay.page_with(Form::Binary, &headers).await.expect("a WebSocket");
    let proto = VersionRange::only(LIVE_WIRE);
    let key = KeyId::Share(ticket.id.clone());
    page.send(&ClientMessage::Hello { proto, key, nonce: NONCE }).await;
    let Some(ServerMessage::Challenge { nonce, .. }) = page.receive().await else { panic!("no challenge") };
    let exchange = Exchange { client: NONCE, server: nonce, authority: &page.host };
    let code = exchange.client_code(&ticket.proof());
    page.send(&ClientMessage::Proof { code }).await;
    assert!(matches!(page.receive().await, Some(ServerMessage::Welcome(_))));
    page
}

/// The audit log by HTTP.
async fn log(relay: &TestRelay) -> AuditLog {
    let bearer = format!("Bearer {}", relay.key.reveal());
    let headers = [("Authorization", bearer.as_str()), (USER_HEADER, "alice")];
    let reply = relay.request("GET /api/v1/audit?days=1", &headers).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    serde_json::from_str(&reply.body).unwrap()
}

fn views(log: &AuditLog) -> Vec<View> {
    let view = |record: &AuditRecord| match record {
        AuditRecord::View(view) => Some(view.clone()),
        AuditRecord::Action(_) => None,
    };
    log.records.iter().filter_map(view).collect()
}

/// The views, once one has ended.
async fn ended_views(relay: &TestRelay) -> Vec<View> {
    let ended = async {
        loop {
            let views = views(&log(relay).await);
            if views.iter().any(|view| matches!(view.end, ViewEnd::Ended { .. })) {
                return views;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, ended).await.expect("the end of a view")
}

#[tokio::test]
async fn a_view_is_recorded_from_its_begin_to_its_end() {
    let relay = TestRelay::start().await;
    let (made, ticket) = share(&relay).await;
    let page = enter(&relay, &ticket, &[]).await;
    let [view] = views(&log(&relay).await).try_into().expect("one view");
    assert_eq!((view.end, view.client), (ViewEnd::Open, ViewClient::Page));
    assert_eq!((&view.share, view.label.as_str()), (&made.share.id, "for Bob"));
    assert_eq!(view.viewer.user, Peer::owner().uid().and_then(user::name_of));
    assert!(view.viewer.address.is_none() && !view.viewer.by_proxy);
    drop(page);
    let [ended] = ended_views(&relay).await.try_into().expect("one view");
    assert!(matches!(ended.end, ViewEnd::Ended { at_ms } if at_ms >= view.began_ms), "{ended:?}");
}

#[tokio::test]
async fn requests_of_a_guest_to_the_api_are_one_view_and_those_of_the_owner_none() {
    let relay = TestRelay::start().await;
    let (made, ticket) = share(&relay).await;
    for bearer in [relay.key.reveal(), ticket.reveal(), ticket.reveal()] {
        let bearer = format!("Bearer {bearer}");
        relay.request("GET /api/v1/picture", &[("Authorization", &bearer)]).await;
    }
    let log = log(&relay).await;
    let [view] = views(&log).try_into().expect("one view");
    assert_eq!((view.client, view.end), (ViewClient::Api, ViewEnd::Open));
    let created = log.records.iter().any(|record| match record {
        AuditRecord::Action(entry) => {
            entry.action.as_str() == format!("create share {} of everything", made.share.id)
                && entry.succeeded
        }
        AuditRecord::View(_) => false,
    });
    assert!(created, "{log:?}");
}

#[tokio::test]
async fn behind_a_proxy_the_viewer_is_who_the_proxy_names() {
    let relay = TestRelay::start_behind_us().await;
    let (_, ticket) = share(&relay).await;
    let headers = [(USER_HEADER, "bob"), ("x-forwarded-for", "203.0.113.9")];
    let _page = enter(&relay, &ticket, &headers).await;
    let [view] = views(&log(&relay).await).try_into().expect("one view");
    assert_eq!(view.viewer.user, Some("bob".into()));
    assert_eq!((view.viewer.address, view.viewer.by_proxy), (Some("203.0.113.9".into()), true));
}

#[tokio::test]
async fn t09_a_guest_cannot_read_the_audit_log() {
    let relay = TestRelay::start().await;
    let (_, ticket) = share(&relay).await;
    let bearer = format!("Bearer {}", ticket.reveal());
    let reply = relay.request("GET /api/v1/audit", &[("Authorization", &bearer)]).await;
    assert_eq!((reply.status, reply.detail().as_str()), (403, "a share does not show this"));
    assert_eq!(relay.request("GET /api/v1/audit", &[]).await.status, 401);
    let mut page = enter(&relay, &ticket, &[]).await;
    page.send(&ClientMessage::Request { number: 1, request: Request::Audit { days: 30 } }).await;
    loop {
        match page.receive().await.expect("an answer") {
            ServerMessage::Response { number: 1, response: Response::Refused(why) } => {
                assert_eq!(why.as_str(), "only the owner of this relay may request this");
                return;
            }
            ServerMessage::Response { response, .. } => panic!("{response:?}"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn without_an_audit_log_nothing_is_recorded_and_the_answer_says_so() {
    let relay = TestRelay::start_without_audit().await;
    let (made, ticket) = share(&relay).await;
    let _page = enter(&relay, &ticket, &[]).await;
    let bearer = format!("Bearer {}", ticket.reveal());
    relay.request("GET /api/v1/picture", &[("Authorization", &bearer)]).await;
    assert!(made.link.is_some());
    assert_eq!(log(&relay).await, AuditLog { is_recorded: false, records: Vec::new(), omitted: 0 });
}

#[tokio::test]
async fn a_wrong_number_of_days_is_refused() {
    let relay = TestRelay::start().await;
    let bearer = format!("Bearer {}", relay.key.reveal());
    for days in ["x", "-1", ""] {
        let path = format!("GET /api/v1/audit?days={days}");
        let reply = relay.request(&path, &[("Authorization", &bearer)]).await;
        assert_eq!(reply.status, 400, "{days}: {}", reply.body);
    }
}
