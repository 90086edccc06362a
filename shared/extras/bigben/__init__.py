"""BigBen's HTTP API under `/api/bigben`, for those who run that archived system: translated onto the scheduler, nothing kept besides."""
