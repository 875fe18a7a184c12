//! Actions.

use super::{EnvironmentVariable, File, messages};

messages! {
    Action = "Action" {
        download_action: Option<Box<DownloadAction>> = 1 [message, optional, boxed],
        upload_action: Option<Box<UploadAction>> = 2 [message, optional, boxed],
        run_action: Option<Box<RunAction>> = 3 [message, optional, boxed],
        timeout_action: Option<Box<TimeoutAction>> = 4 [message, optional, boxed],
        emit_progress_action: Option<Box<EmitProgressAction>> = 5 [message, optional, boxed],
        try_action: Option<Box<TryAction>> = 6 [message, optional, boxed],
        parallel_action: Option<Box<ParallelAction>> = 7 [message, optional, boxed],
        serial_action: Option<Box<SerialAction>> = 8 [message, optional, boxed],
        codependent_action: Option<Box<CodependentAction>> = 9 [message, optional, boxed],
    }
    DownloadAction = "DownloadAction" {
        artifact: String = 1 [string],
        from: String = 2 [string],
        to: String = 3 [string],
        cache_key: String = 4 [string],
        log_source: String = 5 [string],
        user: String = 6 [string],
        checksum_algorithm: String = 7 [string],
        checksum_value: String = 8 [string],
    }
    UploadAction = "UploadAction" {
        artifact: String = 1 [string],
        from: String = 2 [string],
        to: String = 3 [string],
        log_source: String = 4 [string],
        user: String = 5 [string],
    }
    RunAction = "RunAction" {
        path: String = 1 [string],
        args: Vec<String> = 2 [string, repeated],
        dir: String = 3 [string],
        env: Vec<EnvironmentVariable> = 4 [message, repeated],
        resource_limits: Option<ResourceLimits> = 5 [message, optional],
        user: String = 6 [string],
        log_source: String = 7 [string],
        suppress_log_output: bool = 8 [bool],
        volume_mounted_files: Vec<File> = 9 [message, repeated],
    }
    TimeoutAction = "TimeoutAction" {
        action: Option<Action> = 1 [message, optional],
        deprecated_timeout_ns: i64 = 2 [int64],
        log_source: String = 3 [string],
        timeout_ms: i64 = 4 [int64],
    }
    EmitProgressAction = "EmitProgressAction" {
        action: Option<Action> = 1 [message, optional],
        start_message: String = 2 [string],
        success_message: String = 3 [string],
        failure_message_prefix: String = 4 [string],
        log_source: String = 5 [string],
    }
    TryAction = "TryAction" {
        action: Option<Action> = 1 [message, optional],
        log_source: String = 2 [string],
    }
    ParallelAction = "ParallelAction" {
        actions: Vec<Action> = 1 [message, repeated],
        log_source: String = 2 [string],
    }
    SerialAction = "SerialAction" {
        actions: Vec<Action> = 1 [message, repeated],
        log_source: String = 2 [string],
    }
    CodependentAction = "CodependentAction" {
        actions: Vec<Action> = 1 [message, repeated],
        log_source: String = 2 [string],
    }
    ResourceLimits = "ResourceLimits" {
        nofile: Option<u64> = 1 [uint64, optional],
        nproc: Option<u64> = 2 [uint64, optional],
    }
}
