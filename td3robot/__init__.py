"""td3robot."""
