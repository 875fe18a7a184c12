//! Enumerations. Numbers that are not known stay numbers in the messages: a newer peer may have them.

macro_rules! enumerations {
    ($( $name:ident = $bbs:literal { $( $value:ident = $number:literal $text:literal ),* $(,)? } )*) => {
        $(
            #[doc = concat!("The BBS's enumeration `", $bbs, "`.")]
            #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
            #[repr(i32)]
            pub enum $name {
                $(
                    #[doc = concat!("`", $text, "`.")]
                    $value = $number,
                )*
            }
        )*

        /// All enumerations: our name, the BBS's, and the values by name.
        pub const ENUMERATIONS: &[(&str, &str, &[(&str, i32)])] = &[
            $( (stringify!($name), $bbs, &[$( ($text, $number) ),*]) ),*
        ];
    };
}

enumerations! {
    ErrorType = "Error.Type" {
        UnknownError = 0 "UnknownError",
        InvalidRecord = 3 "InvalidRecord",
        InvalidRequest = 4 "InvalidRequest",
        InvalidResponse = 5 "InvalidResponse",
        InvalidProtobufMessage = 6 "InvalidProtobufMessage",
        InvalidJson = 7 "InvalidJSON",
        FailedToOpenEnvelope = 8 "FailedToOpenEnvelope",
        InvalidStateTransition = 9 "InvalidStateTransition",
        ResourceConflict = 11 "ResourceConflict",
        ResourceExists = 12 "ResourceExists",
        ResourceNotFound = 13 "ResourceNotFound",
        RouterError = 14 "RouterError",
        ActualLrpCannotBeClaimed = 15 "ActualLRPCannotBeClaimed",
        ActualLrpCannotBeStarted = 16 "ActualLRPCannotBeStarted",
        ActualLrpCannotBeCrashed = 17 "ActualLRPCannotBeCrashed",
        ActualLrpCannotBeFailed = 18 "ActualLRPCannotBeFailed",
        ActualLrpCannotBeRemoved = 19 "ActualLRPCannotBeRemoved",
        ActualLrpCannotBeUnclaimed = 21 "ActualLRPCannotBeUnclaimed",
        RunningOnDifferentCell = 24 "RunningOnDifferentCell",
        GuidGeneration = 26 "GUIDGeneration",
        Deserialize = 27 "Deserialize",
        Deadlock = 28 "Deadlock",
        Unrecoverable = 29 "Unrecoverable",
        LockCollision = 30 "LockCollision",
        Timeout = 31 "Timeout",
    }
    PreferredAddress = "ActualLRPNetInfo.PreferredAddress" {
        Unknown = 0 "UNKNOWN",
        Instance = 1 "INSTANCE",
        Host = 2 "HOST",
    }
    Presence = "ActualLRP.Presence" {
        Ordinary = 0 "ORDINARY",
        Evacuating = 1 "EVACUATING",
        Suspect = 2 "SUSPECT",
    }
    UpdateStrategy = "DesiredLRP.UpdateStrategy" {
        Rolling = 0 "ROLLING",
        Recreate = 1 "RECREATE",
    }
    DigestAlgorithm = "ImageLayer.DigestAlgorithm" {
        Invalid = 0 "DigestAlgorithmInvalid",
        Sha256 = 1 "SHA256",
        Sha512 = 2 "SHA512",
    }
    MediaType = "ImageLayer.MediaType" {
        Invalid = 0 "MediaTypeInvalid",
        Tgz = 1 "TGZ",
        Tar = 2 "TAR",
        Zip = 3 "ZIP",
    }
    LayerType = "ImageLayer.Type" {
        Invalid = 0 "LayerTypeInvalid",
        Shared = 1 "SHARED",
        Exclusive = 2 "EXCLUSIVE",
    }
    DynamicValue = "MetricTagValue.DynamicValue" {
        Invalid = 0 "DynamicValueInvalid",
        Index = 1 "INDEX",
        InstanceGuid = 2 "INSTANCE_GUID",
    }
    TaskState = "Task.State" {
        Invalid = 0 "Invalid",
        Pending = 1 "Pending",
        Running = 2 "Running",
        Completed = 3 "Completed",
        Resolving = 4 "Resolving",
    }
}
