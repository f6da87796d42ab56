"""The viewer: shows an arm in the browser, in a separate process, from files that other programs write anyway.

A :class:`~td3robot.view.source.Source` supplies what there is to see, one moment at a time; a page shows it (viser or
Swift); :class:`~td3robot.view.show.Show` connects the two at their own pace. No training or control loop calls anything
here, so none can wait for it.
"""
