"""Looking at an arm in the browser: a process of its own, fed by files that other programs write anyway.

A :class:`~td3robot.view.source.Source` says what there is to see, one moment at a time; a page shows it (viser or
Swift); :class:`~td3robot.view.show.Show` brings the two together at their own pace. Nothing here is called by a
training or a control loop, so none can wait for it.
"""
