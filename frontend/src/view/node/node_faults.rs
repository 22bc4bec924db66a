//! The faults of a node and its GPUs during the jobs of the last weeks.

use crate::describe::node_fault::{FaultRow, row};
use crate::platform;
use crate::state::page::Page;
use crate::view::reports::load::{Loading, load};
use crate::view::severity_class::SeverityClass;
use leptos::prelude::*;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::report::{ReportAnswer, ReportQuery};

/// The days in which faults are searched.
const DAYS: u32 = 30;

/// The faults, which are loaded once they are unfolded: the reports of all jobs are read for them. Guests have none.
#[component]
pub fn NodeFaults(
    /// The node.
    name: NodeName,
) -> impl IntoView {
    let page = Page::from_context();
    let is_open = RwSignal::new(false);
    move || {
        let name = name.clone();
        page.is_owner().then(|| {
            view! {
                <details class="panel links-panel" on:toggle=move |_| is_open.set(true)>
                    <summary><b>"Faults"</b> {format!(" · of the last {DAYS} days, across jobs")}</summary>
                    {move || is_open.get().then(|| view! { <Faults name=name.clone()/> })}
                </details>
            }
        })
    }
}

#[component]
fn Faults(name: NodeName) -> impl IntoView {
    let loaded = load(
        move || ReportQuery::Faults { node: name.clone(), days: DAYS },
        |answer| match answer {
            ReportAnswer::Faults(faults) => Some(faults),
            _ => None,
        },
    );
    move || {
        match loaded.get() {
        Loading::Pending => view! { <p class="empty">"Loading the faults …"</p> }.into_any(),
        Loading::Failed(why) => view! { <p class="empty">{why}</p> }.into_any(),
        Loading::Ready(faults) if faults.is_empty() => {
            view! { <p class="empty">"No fault of the node or its GPUs was found during the jobs that this relay has seen here."</p> }
                .into_any()
        }
        Loading::Ready(faults) => {
            let rows = faults.iter().map(|fault| row(fault, platform::format_time_or_date)).map(fault_row);
            view! {
                <div class="links__scroll" role="region" aria-label="Faults" tabindex="0">
                    <table class="plain">
                        <thead><tr>
                            <th scope="col">"Fault"</th>
                            <th scope="col">"GPU"</th>
                            <th scope="col" class="num">"Times"</th>
                            <th scope="col" class="num">"Jobs"</th>
                            <th scope="col">"First"</th>
                            <th scope="col">"Last"</th>
                            <th scope="col" class="num">"Lasted"</th>
                        </tr></thead>
                        <tbody>{rows.collect_view()}</tbody>
                    </table>
                </div>
            }
            .into_any()
        }
    }
    }
}

fn fault_row(row: FaultRow) -> AnyView {
    view! {
        <tr>
            <th scope="row" class="plain__long"><i class=row.severity.class() aria-hidden="true"></i> {row.title}</th>
            <td>{row.gpu}</td>
            <td class="num">{row.times}</td>
            <td class="num">{row.jobs}</td>
            <td>{row.first}</td>
            <td>{row.last}</td>
            <td class="num">{row.lasted}</td>
        </tr>
    }
    .into_any()
}
