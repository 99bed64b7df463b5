// Metro bundles files outside of the app only from the folders listed here.
const path = require("path");
const { getDefaultConfig, mergeConfig } = require("@react-native/metro-config");

module.exports = mergeConfig(getDefaultConfig(__dirname), { watchFolders: [path.resolve(__dirname, "../js_common")] });
