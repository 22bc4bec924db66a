//! Tiles with the totals of a scope: utilisation, memory, power, and hosts.

use crate::domain::metric::GraphMetric;
use crate::domain::text;
use crate::state::page::Page;
use crate::view::charts::sparkline::Area;
use crate::view::scope::NodeScope;
use leptos::prelude::*;
use nodeglass_protocol::GpuField;

/// The tiles of a scope.
#[component]
pub fn Tiles(scope: NodeScope) -> impl IntoView {
    let page = Page::from_context();
    let totals = Memo::new({
        let (scope, page) = (scope.clone(), page.clone());
        move |_| scope.totals(&page)
    });
    let hosts = Memo::new({
        let (scope, page) = (scope.clone(), page.clone());
        move |_| scope.hosts(&page)
    });
    let vendors = Memo::new({
        let scope = scope.clone();
        move |_| scope.vendors()
    });
    let title = move || totals.get().util_title(GraphMetric::UTIL.title_for(vendors.get()));
    let util_now = move || totals.get().util_pct().map(|pct| (pct.to_string(), "%".to_owned()));
    let mem_title = move || totals.get().usage_title("GPU memory", totals.get().mem);
    let power_title = move || totals.get().usage_title("Power", totals.get().power);
    let mem_now =
        move || totals.get().mem.used.map(|used| text::memory_parts(used, totals.get().mem.capacity));
    let power_now =
        move || totals.get().power.used.map(|used| text::power_parts(used, totals.get().power.capacity));
    let host_now = move || {
        let of_job = page.sees_only_jobs();
        let ram = hosts.get().mem;
        let ram =
            ram.used.map(|used| ram_parts(used, ram.capacity)).map(|(used, of)| format!("· {used} {of}"));
        let host =
            hosts.get().cpu_pct().map(|pct| (pct.to_string(), format!("% {}", ram.unwrap_or_default())));
        // A guest of a job receives no host readings if other jobs use the host, too.
        host.or_else(|| of_job.then(|| ("–".to_owned(), "not shared: other jobs use it too".to_owned())))
    };
    let host_only = scope.has_no_gpus();
    let of_gpus = {
        let scope = scope.clone();
        move || {
            let chart = |field: GpuField, hue: &'static str| chart(&scope, Some(field), hue);
            (!host_only.get()).then(|| {
                view! {
                    <Tile title=Signal::derive(title) now=Signal::derive(util_now) chart=chart(GpuField::Util, "hue-util")/>
                    <Tile title=Signal::derive(mem_title) now=Signal::derive(mem_now) chart=chart(GpuField::MemUsed, "hue-mem")/>
                    <Tile title=Signal::derive(power_title) now=Signal::derive(power_now) chart=chart(GpuField::Power, "hue-power")/>
                }
            })
        }
    };
    view! {
        <section class="tiles" class:tiles--host=host_only aria-label="Totals">
            {move || of_gpus()}
            <Tile title="Host CPU · RAM" now=Signal::derive(host_now) chart=chart(&scope, None, "hue-host")/>
        </section>
    }
}

/// Formats used and total memory of hosts, which share their tile with the CPU: from two TiB on shorter than elsewhere.
fn ram_parts(used: u64, whole: Option<u64>) -> (String, String) {
    const TIB: u64 = 1 << 40;
    let tib = |bytes: u64| text::tenths(bytes as f64 / TIB as f64);
    match whole.filter(|whole| *whole >= 2 * TIB) {
        Some(whole) => (tib(used), format!("/ {} TiB", tib(whole))),
        None => text::memory_parts(used, whole),
    }
}

/// One total: its value, a suffix in small print, and its history.
#[component]
fn Tile(
    #[prop(into)] title: Signal<String>,
    now: Signal<Option<(String, String)>>,
    chart: AnyView,
) -> impl IntoView {
    let value = move || now.get().map(|(value, _)| value);
    view! {
        <div class="tile">
            <div class="tile__title">{title}</div>
            <div class="tile__value">
                {move || text::or_absent(value())} " " <small>{move || now.get().map(|(_, rest)| rest)}</small>
            </div>
            {chart}
        </div>
    }
}

/// The history of a tile over ten minutes: a field of the scope's GPUs, or the hosts' CPU use.
fn chart(scope: &NodeScope, field: Option<GpuField>, hue: &'static str) -> AnyView {
    let page = Page::from_context();
    let series = match field {
        Some(field) => scope.series(&page, field),
        None => scope.host_series(&page),
    };
    view! { <Area series hue/> }.into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_large_hosts_is_short() {
        let parts = |used: u64, whole: u64| ram_parts(used << 30, Some(whole << 30));
        assert_eq!(parts(1_367, 4_030), ("1.3".to_owned(), "/ 3.9 TiB".to_owned()));
        assert_eq!(parts(684, 2_015), ("684".to_owned(), "/ 2,015 GiB".to_owned()));
    }
}
