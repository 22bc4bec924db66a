//! Messages of the page to the relay, and the handshake.

use crate::both;
use crate::values::{exchange, node_name, reference, share_id};
use nodeglass_protocol::JobId;
use nodeglass_protocol::finding::{FindingKind, SilenceRequest};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::handshake::{Key, LEN, Nonce};
use nodeglass_protocol::live::{ClientMessage, KeyId, ServerMessage, Topic};
use nodeglass_protocol::note::{NewNote, NoteEdit, NoteId, NoteRequest, NoteSource};
use nodeglass_protocol::range::RangeQuery;
use nodeglass_protocol::replay::ReplayCommand;
use nodeglass_protocol::report::ReportQuery;
use nodeglass_protocol::request::{JobAction, LogRef, LogStream, Request, RetryTarget, Signal};
use nodeglass_protocol::share::{HiddenParts, Scope, ShareRequest};
use nodeglass_protocol::version::VersionRange;
use std::path::PathBuf;

#[test]
fn messages_of_the_page() {
    both(
        "hello",
        &ClientMessage::Hello { proto: VersionRange::only(2), key: KeyId::Owner, nonce: Nonce([1; LEN]) },
    );
    both(
        "hello-share",
        &ClientMessage::Hello {
            proto: VersionRange { min: 1, max: 2 },
            key: KeyId::Share(share_id()),
            nonce: Nonce([1; LEN]),
        },
    );
    both(
        "hello-tab",
        &ClientMessage::Hello {
            proto: VersionRange::only(2),
            key: KeyId::Tab(share_id()),
            nonce: Nonce([1; LEN]),
        },
    );
    both(
        "hello-person",
        &ClientMessage::Hello { proto: VersionRange::only(2), key: KeyId::Person, nonce: Nonce([1; LEN]) },
    );
    both("proof", &ClientMessage::Proof { code: exchange().client_code(&Key::new([7; LEN])) });
    both(
        "subscribe",
        &ClientMessage::Subscribe(vec![Topic::Overview, Topic::Job(JobId(17)), Topic::Node(node_name())]),
    );
    both("resync", &ClientMessage::Resync(Topic::Job(JobId(17))));
    let requests = [
        Request::Process { node: node_name(), process: reference(), environment: false },
        Request::Signal { node: node_name(), process: reference(), signal: Signal::Interrupt },
        Request::Job { job: JobId(17), action: JobAction::Requeue },
        Request::Share(Box::new(ShareRequest {
            label: "for Bob".into(),
            scope: Scope::Nodes(vec![node_name()]),
            hidden: HiddenParts { logs: false, ..HiddenParts::default() },
            to: Some("bob".into()),
            lifetime_s: Some(3_600),
        })),
        Request::ShareLink(share_id()),
        Request::Revoke(share_id()),
        Request::Retry(RetryTarget::Node(node_name())),
        Request::Retry(RetryTarget::Jobs),
        Request::Retry(RetryTarget::Everything),
        Request::Replay(ReplayCommand::Speed(400)),
        Request::Replay(ReplayCommand::Seek(691_230_500)),
        Request::Note(NoteRequest::Add(NewNote {
            job: Some(JobId(17)),
            node: None,
            at_ms: Some(1_700_000_100_000),
            text: "epoch 3".into(),
            source: NoteSource::Page,
        })),
        Request::Note(NoteRequest::Edit {
            id: NoteId::from_bits(4_711),
            edit: NoteEdit {
                text: Some("epoch 4".into()),
                at_ms: None,
                if_text: Some("epoch 3".into()),
                if_at_ms: Some(7),
            },
        }),
        Request::Note(NoteRequest::Delete(NoteId::from_bits(4_711))),
        Request::Silence(SilenceRequest {
            kind: Some(FindingKind::IdleGpus),
            job: Some(JobId(17)),
            for_s: 3_600,
        }),
    ];
    both("requests", &requests.map(|request| ClientMessage::Request { number: 5, request }).to_vec());
    let request = Request::Share(Box::new(ShareRequest {
        label: "".into(),
        scope: Scope::of_jobs(vec![JobId(17)], vec![JobId(40)]),
        hidden: HiddenParts::default(),
        to: None,
        lifetime_s: None,
    }));
    both("request-share-arrays", &ClientMessage::Request { number: 10, request });
    both("request-report", &ClientMessage::Request { number: 9, request: Request::SendReport(JobId(17)) });
    both(
        "request-find",
        &ClientMessage::Request { number: 11, request: Request::FindProcesses { pid: 41_822 } },
    );
    both("request-audit", &ClientMessage::Request { number: 8, request: Request::Audit { days: 30 } });
    both("follow", &ClientMessage::Follow(vec![LogRef { job: JobId(17), stream: LogStream::Stderr }]));
    let query = RangeQuery {
        topic: Topic::Job(JobId(17)),
        from_ms: 691_200_000,
        to_ms: 694_800_000,
        step_ms: 10_000,
        gpu_fields: vec!["util_pct".into()],
        host_fields: vec!["cpu_pct".into()],
    };
    both("query-range", &ClientMessage::Range { number: 6, query });
    let queries = [
        ReportQuery::Jobs(vec![JobId(17), JobId(18)]),
        ReportQuery::Usage { days: 30 },
        ReportQuery::Faults { node: node_name(), days: 30 },
    ];
    both("query-report", &queries.map(|query| ClientMessage::Report { number: 7, query }).to_vec());
}

/// The first messages are the same in every version, so that pages of other versions can read them.
#[test]
fn the_handshake_is_that_of_version_1() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/frozen/v1");
    for (form, extension) in [(Form::Binary, "bin"), (Form::Json, "json")] {
        let read = |name: &str| std::fs::read(folder.join(format!("{name}.{extension}"))).unwrap();
        for name in ["hello", "hello-share", "proof"] {
            let message: ClientMessage = form.decode(&read(name)).unwrap();
            assert_eq!(form.encode(&message), read(name), "{name}");
        }
        for name in ["challenge", "bye-version", "bye-refused"] {
            let message: ServerMessage = form.decode(&read(name)).unwrap();
            assert_eq!(form.encode(&message), read(name), "{name}");
        }
    }
}
