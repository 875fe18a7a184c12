//! The figures: printed as they come, and written to `bench-results.json` at the end.

use std::path::Path;
use std::time::Instant;

/// Everything measured so far.
#[derive(Debug, Default)]
pub struct Figures(Vec<(String, Option<f64>, &'static str)>);

impl Figures {
    /// Notes one figure and prints it.
    #[expect(clippy::print_stdout, reason = "printing figures is what a benchmark is for")]
    pub fn note(&mut self, name: &str, value: f64, unit: &'static str) {
        println!("{name:<40} {value:>14.2} {unit}");
        self.0.push((name.to_owned(), Some(value), unit));
    }

    /// Notes that a figure could not be had here, and why: it is written as null.
    #[expect(clippy::print_stdout, reason = "printing figures is what a benchmark is for")]
    pub fn missing(&mut self, name: &str, unit: &'static str, why: &str) {
        println!("{name:<40} {:>14} {unit} ({why})", "-");
        self.0.push((name.to_owned(), None, unit));
    }

    /// Notes the median and the 90th percentile of some times in milliseconds.
    pub fn spread(&mut self, name: &str, times_ms: &[f64]) {
        for (nth, hundredths) in [("p50", 50), ("p90", 90)] {
            self.note(&format!("{name}.{nth}_ms"), percentile(times_ms, hundredths), "ms");
        }
    }

    /// Writes all figures, replacing those of the same name that the file already holds.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let old = std::fs::read(path).ok();
        let old: Vec<serde_json::Value> =
            old.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        let mut all: Vec<serde_json::Value> = old
            .into_iter()
            .filter(|entry| !self.0.iter().any(|(name, _, _)| entry["name"] == **name))
            .collect();
        for (name, value, unit) in &self.0 {
            all.push(serde_json::json!({"name": name, "value": value, "unit": unit}));
        }
        all.sort_by_key(|entry| entry["name"].to_string());
        std::fs::write(path, serde_json::to_vec_pretty(&all)?)?;
        Ok(())
    }
}

/// The value below which so many hundredths of the values are. There must be one at least.
pub fn percentile(values: &[f64], hundredths: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() * hundredths / 100).min(sorted.len() - 1)]
}

/// The median of some timed runs, in milliseconds.
pub fn median_ms(runs: usize, mut run: impl FnMut(usize)) -> f64 {
    let times: Vec<f64> = (0..runs)
        .map(|nth| {
            let start = Instant::now();
            run(nth);
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    percentile(&times, 50)
}

/// Bytes of memory that this process holds.
pub fn resident_bytes() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    let kib: u64 = kib.ok_or_else(|| anyhow::anyhow!("no VmRSS in /proc/self/status"))?.parse()?;
    Ok(kib * 1024)
}
