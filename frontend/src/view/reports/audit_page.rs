//! The audit log: who viewed through which share, and which actions were performed.

use super::load::{Loading, load_response};
use crate::describe::audit::{AuditFilter, AuditRow, RecordKind, rows, shares};
use crate::domain::text;
use crate::platform;
use crate::state::page::Page;
use leptos::prelude::*;
use nodeglass_protocol::audit::AuditLog;
use nodeglass_protocol::request::{Request, Response};

/// The offered numbers of days.
const DAYS: [u32; 4] = [1, 7, 30, 365];
/// The number without a choice.
const DEFAULT_DAYS: u32 = 30;
/// Query parameters: the number of days, the kind of record, and the share.
const DAYS_PARAMETER: &str = "days";
const KIND_PARAMETER: &str = "kind";
const SHARE_PARAMETER: &str = "share";

/// Views and actions, newest first, with filters.
#[component]
pub fn AuditPage() -> impl IntoView {
    let page = Page::from_context();
    let chosen = page.address.query(DAYS_PARAMETER);
    let days = Memo::new(move |_| {
        let days = chosen.with(|days| days.as_ref().and_then(|days| days.parse().ok()));
        days.filter(|days| DAYS.contains(days)).unwrap_or(DEFAULT_DAYS)
    });
    let (kind, share) = (page.address.query(KIND_PARAMETER), page.address.query(SHARE_PARAMETER));
    let filter = Memo::new(move |_| AuditFilter {
        kind: kind.with(|kind| kind.as_deref().and_then(RecordKind::from_name)).unwrap_or_default(),
        share: share.get(),
    });
    let loaded = load_response(
        move || Request::Audit { days: days.get() },
        |response| match response {
            Response::Audit(log) => Some(*log),
            _ => None,
        },
    );
    let notice = move || {
        loaded.with(|loaded| match loaded {
            Loading::Pending => Some("Loading …".to_owned()),
            Loading::Failed(why) => Some(why.clone()),
            Loading::Ready(_) => None,
        })
    };
    let log = Memo::new(move |_| match loaded.get() {
        Loading::Ready(log) => log,
        Loading::Pending | Loading::Failed(_) => AuditLog::default(),
    });
    let is_ready = Memo::new(move |_| matches!(loaded.get(), Loading::Ready(_)));
    let shown = page.clone();
    view! {
        <div class="head head--line usage__head">
            <h1>"Audit log"</h1>
            <div class="usage__days" role="group" aria-label="Period">{days_buttons(&page, days)}</div>
        </div>
        {move || notice().map(|text| view! { <p class="empty">{text}</p> })}
        <Show when=move || is_ready.get()>
            {unrecorded(log)}
            {filters(&shown, log, filter)}
            {table(&shown, log, filter)}
        </Show>
    }
}

fn days_buttons(page: &Page, days: Memo<u32>) -> AnyView {
    let button = |offered: u32| {
        let address = page.address.clone();
        let choose = move |_| {
            let value = (offered != DEFAULT_DAYS).then(|| offered.to_string());
            address.push_query(DAYS_PARAMETER, value);
        };
        let label = match offered {
            1 => "24 h".to_owned(),
            365 => "1 year".to_owned(),
            days => format!("{days} days"),
        };
        view! {
            <button class="btn btn--small" aria-pressed=move || (days.get() == offered).to_string() on:click=choose>{label}</button>
        }
    };
    DAYS.map(button).into_iter().collect_view().into_any()
}

/// States that the log is off, if so.
fn unrecorded(log: Memo<AuditLog>) -> AnyView {
    let is_recorded = Memo::new(move |_| log.with(|log| log.is_recorded));
    (move || {
        (!is_recorded.get()).then(|| {
            let text = "This relay was started with --no-audit: it records no views and no actions. \
                        Records of earlier relays are shown.";
            view! { <p class="notice">{text}</p> }
        })
    })
    .into_any()
}

fn filters(page: &Page, log: Memo<AuditLog>, filter: Memo<AuditFilter>) -> AnyView {
    let kinds = RecordKind::ALL.map(|kind| {
        let address = page.address.clone();
        let choose = move |_| {
            let value = (kind != RecordKind::default()).then(|| kind.name().to_owned());
            address.push_query(KIND_PARAMETER, value);
        };
        view! {
            <button class="btn btn--small" aria-pressed=move || (filter.with(|filter| filter.kind) == kind).to_string() on:click=choose>
                {kind.label()}
            </button>
        }
    });
    let used = Memo::new(move |_| log.with(|log| shares(&log.records)));
    let address = page.address.clone();
    let choose = move |event: web_sys::Event| {
        let value = event_target_value(&event);
        address.push_query(SHARE_PARAMETER, (!value.is_empty()).then_some(value));
    };
    let option = move |(id, label): (nodeglass_protocol::share::ShareId, String)| {
        let name = id.to_string();
        let is_chosen = move || filter.with(|filter| filter.share.as_deref() == Some(name.as_str()));
        view! { <option value=id.to_string() selected=is_chosen>{label}</option> }
    };
    view! {
        <div class="audit__filters">
            <div class="usage__days" role="group" aria-label="Kind">{kinds.into_iter().collect_view()}</div>
            <label class="audit__share"><span>"Share"</span>
                <select class="btn" on:change=choose>
                    <option value="" selected=move || filter.with(|filter| filter.share.is_none())>"all"</option>
                    <For each=move || used.get() key=|(id, _)| id.clone() children=option/>
                </select>
            </label>
        </div>
    }
    .into_any()
}

/// Says how many entries are shown, and how many older ones the relay left out.
fn count_text(shown: usize, omitted: u32) -> String {
    let shown = text::count(shown, "entry", "entries");
    match omitted {
        0 => shown,
        omitted => format!(
            "{shown} of the newest {}; {} older ones are left out, see `relay audit`",
            text::grouped(AuditLog::MAX_RECORDS as u64),
            text::grouped(u64::from(omitted))
        ),
    }
}

fn table(page: &Page, log: Memo<AuditLog>, filter: Memo<AuditFilter>) -> AnyView {
    let page = page.clone();
    // The length of a view that is open is shown in minutes.
    let minute = Memo::new(move |_| page.wall_s().unsigned_abs() / 60);
    let shown = Memo::new(move |_| {
        let (filter, now_ms) = (filter.get(), minute.get() * 60_000);
        log.with(|log| rows(&log.records, &filter, now_ms))
    });
    let count = move || count_text(shown.with(Vec::len), log.with(|log| log.omitted));
    let line = |row: AuditRow| {
        view! {
            <tr class:is-failure=row.is_failure>
                <th scope="row">{platform::local_datetime(row.at_s)}</th>
                <td>{row.kind}</td>
                <td class="plain__name">{row.what}</td>
                <td>{row.who}</td>
                <td class="plain__name">{row.share}</td>
                <td>{row.result}</td>
            </tr>
        }
    };
    let body = move || match shown.get() {
        rows if rows.is_empty() => {
            view! { <tr><td colspan="6" class="empty">"No records in this time."</td></tr> }.into_any()
        }
        rows => rows.into_iter().map(line).collect_view().into_any(),
    };
    view! {
        <h2 class="caption"><b>{count}</b></h2>
        <div class="report__table audit" role="region" aria-label="Views and actions" tabindex="0">
            <table class="plain">
                <thead><tr>
                    <th scope="col">"Time"</th>
                    <th scope="col">"Kind"</th>
                    <th scope="col">"What"</th>
                    <th scope="col">"Who"</th>
                    <th scope="col">"Share"</th>
                    <th scope="col">"Duration or result"</th>
                </tr></thead>
                <tbody>{body}</tbody>
            </table>
        </div>
    }
    .into_any()
}
