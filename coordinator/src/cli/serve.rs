//! `volvox-coordinator run`: the whole coordinator, until it is told to stop.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::config::{CoordinatorConfig, LogFormat};
use crate::run::{self, Coordinator};
use anyhow::Context as _;
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};

/// Sets the log up. `VOLVOX_LOG` comes before the configuration.
pub(crate) fn log(format: LogFormat, level: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("VOLVOX_LOG")
        .or_else(|_| tracing_subscriber::EnvFilter::try_new(level))
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let is_terminal = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(is_terminal)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
}

/// Runs a coordinator until SIGTERM or SIGINT.
pub(crate) fn run(
    config: Option<&Path>,
    data_dir: Option<&Path>,
    join: Option<&str>,
) -> anyhow::Result<ExitCode> {
    let config = CoordinatorConfig::read(config, data_dir)?;
    log(config.log_format, &config.log_level);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    let result = runtime.block_on(serve(config, join));
    // What still runs has had its time; nothing in it is needed any more.
    runtime.shutdown_timeout(Duration::from_secs(2));
    result
}

async fn serve(config: CoordinatorConfig, join: Option<&str>) -> anyhow::Result<ExitCode> {
    // Before anything else: a signal that comes while we start is not to be missed.
    let mut terminate = signal(SignalKind::terminate()).context("hear SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("hear SIGINT")?;
    let coordinator = tokio::select! {
        started = run::start(config, join) => started?,
        _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
        _ = interrupt.recv() => return Ok(ExitCode::SUCCESS),
    };
    notify(&[NotifyState::Ready]);
    tokio::select! {
        () = watchdog(&coordinator) => {}
        _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
    }
    notify(&[NotifyState::Stopping]);
    tokio::select! {
        () = coordinator.stop() => tracing::info!("stopped"),
        // Who asks twice does not want to wait.
        _ = terminate.recv() => tracing::warn!("stopped at once"),
        _ = interrupt.recv() => tracing::warn!("stopped at once"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Tells systemd for as long as the board does what it is told; for ever, if nobody asked to be told.
async fn watchdog(coordinator: &Coordinator) {
    let Some(every) = sd_notify::watchdog_enabled() else {
        return std::future::pending().await;
    };
    let mut tick = tokio::time::interval(every / 3);
    loop {
        tick.tick().await;
        if coordinator.is_well(every / 3).await {
            notify(&[NotifyState::Watchdog]);
        } else {
            tracing::error!("the board does not answer: the watchdog is not told");
        }
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "systemd could not be told");
    }
}
